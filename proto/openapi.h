/* proto/openapi.yaml, which describes everything that npud serves, as part of the binary. */
#ifndef PROTO_OPENAPI_H
#define PROTO_OPENAPI_H

#include <stddef.h>

extern const char openapi_yaml[]; /* NUL-terminated */
extern const size_t openapi_yaml_length;

#endif
