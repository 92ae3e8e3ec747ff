/* A chat format of a template, without a model. For one test program, behind service_fixture.h. */
#ifndef TESTS_UNIT_CHAT_FORMAT_FIXTURE_H
#define TESTS_UNIT_CHAT_FORMAT_FIXTURE_H

#include "daemon/chat_format.h"
#include "npu/gguf.h"
#include "tests/unit/gguf_builder.h"

/* text NULL: the model has no template. */
static inline struct chat_format *create_format(const char *text)
{
    struct gguf_builder builder;
    gguf_builder_init(&builder, 3);
    if (text != NULL)
        gguf_add_string(&builder, "tokenizer.chat_template", text);
    struct gguf_file *file;
    struct chat_format *format;
    struct npu_error error;
    size_t size;
    unsigned char *data = gguf_builder_finish(&builder, &size);
    assert_int_equal(gguf_open_memory(&file, data, size, "built.gguf", &error), NPU_OK);
    assert_int_equal(chat_format_create(&format, file, NULL, NULL, &error), NPU_OK);
    gguf_close(file); /* the format keeps nothing of the file */
    free(data);
    gguf_builder_free(&builder);
    return format;
}

#endif
