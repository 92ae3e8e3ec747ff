/* Stored responses, as the engine thread has them: in the state folder, which is its own. */
#include "daemon/engine_internal.h"

#include <stdlib.h>

#include "daemon/snapshot.h"

struct response_read {
    struct response_reader reader; /* first */
    struct engine *engine;
    struct engine_request *request;
};

static void answer(struct engine *engine, struct engine_request *request, enum engine_answer kind, const char *message)
{
    engine_answer(request, kind, message);
    engine_post_answer(engine, request);
}

static void put(struct engine *engine, struct engine_request *request)
{
    void *record = request->data;
    request->data = NULL;
    if (state_store_put_response(engine->store, &request->response, record, request->data_length))
        answer(engine, request, ENGINE_ANSWER_OK, "");
    else
        answer(engine, request, ENGINE_ANSWER_NOT_STORED,
               "the state folder has no room for the response, or memory is out");
}

static void on_read(struct response_reader *reader, void *bytes, size_t n_bytes)
{
    struct response_read *read = (struct response_read *)reader;
    read->request->data = bytes;
    read->request->data_length = n_bytes;
    answer(read->engine, read->request, bytes != NULL ? ENGINE_ANSWER_OK : ENGINE_ANSWER_UNKNOWN, "");
    free(read);
}

static void begin_read(struct engine *engine, struct engine_request *request)
{
    struct response_read *read = malloc(sizeof *read);
    if (read != NULL)
        *read = (struct response_read){{on_read}, engine, request};
    if (read != NULL && state_store_read_response(engine->store, &request->response, read))
        return;
    free(read);
    answer(engine, request, ENGINE_ANSWER_FAILED, "no memory to read the response");
}

void engine_answer_about_response(struct engine *engine, struct engine_request *request)
{
    if (engine->store == NULL)
        answer(engine, request, ENGINE_ANSWER_UNKNOWN, "there is no state folder");
    else if (request->verb == ENGINE_PUT_RESPONSE)
        put(engine, request);
    else if (!state_store_has_response(engine->store, &request->response))
        answer(engine, request, ENGINE_ANSWER_UNKNOWN, "there is no such response");
    else if (request->verb == ENGINE_READ_RESPONSE)
        begin_read(engine, request);
    else if (state_store_forget_response(engine->store, &request->response))
        answer(engine, request, ENGINE_ANSWER_OK, "");
}
