#include "npu/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu/dequantize.h"
#include "npu/gguf.h"

static const struct {
    const char *name;
    void (*build)(struct model_builder *builder);
} architectures[] = {
    {"llama", arch_llama_build},
    {"gemma3", arch_gemma3_build},
    {"gemma4", arch_gemma4_build},
    {"qwen2", arch_qwen2_build},
    {"qwen3", arch_qwen3_build},
};

enum {
    N_ARCHITECTURES = sizeof architectures / sizeof architectures[0],
    KEY_BYTES = 128
};

void builder_fail(struct model_builder *builder, enum npu_status status, const char *format, ...)
{
    if (builder->failed)
        return; /* the first error is the cause, later ones follow from it */
    builder->failed = true;
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    npu_error_set(builder->error, status, "%s: %s", gguf_path(builder->model->file), message);
}

static void full_key(const struct model_builder *builder, const char *key, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "%s.%s", builder->model->architecture, key);
}

bool builder_has(struct model_builder *builder, const char *key)
{
    char name[KEY_BYTES];
    full_key(builder, key, name);
    return gguf_has(builder->model->file, name);
}

static int64_t check_range(struct model_builder *builder, const char *name, int64_t value, int64_t low, int64_t high)
{
    if (value >= low && value <= high)
        return value;
    builder_fail(builder, NPU_ERROR_INPUT, "metadata %s is %lld; it must be from %lld to %lld", name, (long long)value,
                 (long long)low, (long long)high);
    return low;
}

int64_t builder_int(struct model_builder *builder, const char *key, int64_t low, int64_t high)
{
    char name[KEY_BYTES];
    full_key(builder, key, name);
    int64_t value;
    if (!gguf_get_int(builder->model->file, name, &value)) {
        builder_fail(builder, NPU_ERROR_INPUT, "metadata %s %s", name,
                     gguf_has(builder->model->file, name) ? "must be an integer" : "is missing");
        return low;
    }
    return check_range(builder, name, value, low, high);
}

int64_t builder_int_or(struct model_builder *builder, const char *key, int64_t low, int64_t high, int64_t otherwise)
{
    return builder_has(builder, key) ? builder_int(builder, key, low, high) : otherwise;
}

int64_t builder_layer_int(struct model_builder *builder, const char *key, int layer, int64_t low, int64_t high)
{
    char name[KEY_BYTES];
    full_key(builder, key, name);
    int64_t n;
    if (!gguf_get_array_length(builder->model->file, name, &n))
        return builder_int(builder, key, low, high);
    int64_t value;
    if (layer >= n || !gguf_array_int(builder->model->file, name, layer, &value)) {
        builder_fail(builder, NPU_ERROR_INPUT, "metadata %s has no integer for layer %d (it has %lld elements)", name,
                     layer, (long long)n);
        return low;
    }
    return check_range(builder, name, value, low, high);
}

int64_t builder_layer_int_or(struct model_builder *builder, const char *key, int layer, int64_t low, int64_t high,
                             int64_t otherwise)
{
    return builder_has(builder, key) ? builder_layer_int(builder, key, layer, low, high) : otherwise;
}

double builder_float(struct model_builder *builder, const char *key)
{
    char name[KEY_BYTES];
    full_key(builder, key, name);
    double value;
    if (!gguf_get_float(builder->model->file, name, &value) || !isfinite(value)) {
        builder_fail(builder, NPU_ERROR_INPUT, "metadata %s %s", name,
                     gguf_has(builder->model->file, name) ? "must be a finite number" : "is missing");
        return 1.0;
    }
    return value;
}

double builder_float_or(struct model_builder *builder, const char *key, double otherwise)
{
    return builder_has(builder, key) ? builder_float(builder, key) : otherwise;
}

enum window builder_layer_window(struct model_builder *builder, int layer, int default_pattern)
{
    char name[KEY_BYTES];
    full_key(builder, "attention.sliding_window_pattern", name);
    int64_t n;
    if (gguf_get_array_length(builder->model->file, name, &n))
        return builder_layer_int(builder, "attention.sliding_window_pattern", layer, 0, 1) ? WINDOW_SLIDING
                                                                                           : WINDOW_FULL;
    int64_t pattern = builder_int_or(builder, "attention.sliding_window_pattern", 0, INT32_MAX, default_pattern);
    return pattern == 0 || layer % pattern != pattern - 1 ? WINDOW_SLIDING : WINDOW_FULL;
}

bool builder_string_is(struct model_builder *builder, const char *key, const char *expected)
{
    char name[KEY_BYTES];
    full_key(builder, key, name);
    const char *text;
    size_t length;
    return gguf_get_string(builder->model->file, name, &text, &length) && length == strlen(expected) &&
           memcmp(text, expected, length) == 0;
}

static const struct weight *add_weight(struct model_builder *builder, const struct gguf_tensor *tensor, int64_t n_in,
                                       int64_t n_out)
{
    struct model *model = builder->model;
    if (tensor->dims[0] != n_in || tensor->dims[1] != n_out || tensor->dims[2] != 1 || tensor->dims[3] != 1) {
        builder_fail(builder, NPU_ERROR_INPUT, "tensor %s has shape [%lld, %lld, %lld, %lld]; it must be [%lld, %lld]",
                     tensor->name, (long long)tensor->dims[0], (long long)tensor->dims[1], (long long)tensor->dims[2],
                     (long long)tensor->dims[3], (long long)n_in, (long long)n_out);
        return NULL;
    }
    if (!dequantize_supported(tensor->type)) {
        const char *type = tensor_type_name(tensor->type);
        builder_fail(builder, NPU_ERROR_UNSUPPORTED, "tensor %s has type %s, which is not supported", tensor->name,
                     type ? type : "unknown");
        return NULL;
    }
    if (n_in % tensor_type_block_elements(tensor->type) != 0) {
        builder_fail(builder, NPU_ERROR_INPUT,
                     "tensor %s has rows of %lld elements, not a multiple of %s's block of %d", tensor->name,
                     (long long)n_in, tensor_type_name(tensor->type), tensor_type_block_elements(tensor->type));
        return NULL;
    }
    for (int i = 0; i < model->n_weights; i++) {
        if (model->weights[i].tensor == tensor)
            return &model->weights[i];
    }
    /* One weight per tensor at most, so the array made by model_create never grows and pointers into it stay valid. */
    struct weight *weight = &model->weights[model->n_weights++];
    *weight = (struct weight){tensor, tensor->name, tensor->type, n_in, n_out, tensor->data};
    return weight;
}

static const struct weight *weight_named(struct model_builder *builder, int64_t n_in, int64_t n_out, bool required,
                                         const char *format, va_list arguments)
{
    char name[KEY_BYTES];
    vsnprintf(name, sizeof name, format, arguments);
    if (builder->failed)
        return NULL;
    const struct gguf_tensor *tensor = gguf_find_tensor(builder->model->file, name);
    if (tensor == NULL) {
        if (required)
            builder_fail(builder, NPU_ERROR_INPUT, "tensor %s is missing", name);
        return NULL;
    }
    return add_weight(builder, tensor, n_in, n_out);
}

const struct weight *builder_weight(struct model_builder *builder, int64_t n_in, int64_t n_out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const struct weight *weight = weight_named(builder, n_in, n_out, true, format, arguments);
    va_end(arguments);
    return weight;
}

const struct weight *builder_find_weight(struct model_builder *builder, int64_t n_in, int64_t n_out, const char *format,
                                         ...)
{
    va_list arguments;
    va_start(arguments, format);
    const struct weight *weight = weight_named(builder, n_in, n_out, false, format, arguments);
    va_end(arguments);
    return weight;
}

int builder_add_rope(struct model_builder *builder, struct rope rope)
{
    struct model *model = builder->model;
    if (model->n_ropes == MODEL_MAX_ROPES) {
        builder_fail(builder, NPU_ERROR_UNSUPPORTED, "more than %d kinds of rope", MODEL_MAX_ROPES);
        return 0;
    }
    if (rope.dims < 2 || rope.dims % 2 != 0 || !(rope.base > 0.0) || !(rope.position_scale > 0.0))
        builder_fail(builder, NPU_ERROR_INPUT,
                     "rope over %d dimensions with base %g and position scale %g: the dimensions must be even and at "
                     "least 2, the others positive",
                     rope.dims, rope.base, rope.position_scale);
    model->ropes[model->n_ropes] = rope;
    return model->n_ropes++;
}

int builder_add_kv_layer(struct model_builder *builder, int n_heads, int head_size)
{
    struct model *model = builder->model;
    struct kv_layer *layers = realloc(model->kv_layers, (size_t)(model->n_kv_layers + 1) * sizeof *layers);
    if (layers == NULL) {
        builder_fail(builder, NPU_ERROR_MEMORY, "no memory for the KV layers");
        return 0;
    }
    model->kv_layers = layers;
    layers[model->n_kv_layers] = (struct kv_layer){n_heads, head_size};
    return model->n_kv_layers++;
}

const float *builder_rope_factors(struct model_builder *builder, int dims)
{
    const struct weight *weight = builder_find_weight(builder, dims / 2, 1, "rope_freqs.weight");
    if (weight == NULL)
        return NULL;
    if (weight->type != TENSOR_F32 || (uintptr_t)weight->data % sizeof(float) != 0) {
        builder_fail(builder, NPU_ERROR_UNSUPPORTED, "tensor rope_freqs.weight must be aligned F32");
        return NULL;
    }
    const float *factors = weight->data;
    for (int i = 0; i < dims / 2; i++) {
        if (!(factors[i] > 0.0f)) {
            builder_fail(builder, NPU_ERROR_INPUT, "tensor rope_freqs.weight: element %d is %g; it must be positive", i,
                         (double)factors[i]);
            return NULL;
        }
    }
    return factors;
}

double builder_rope_position_scale(struct model_builder *builder)
{
    if (builder_has(builder, "rope.scaling.type")) {
        if (builder_string_is(builder, "rope.scaling.type", "none"))
            return 1.0;
        if (!builder_string_is(builder, "rope.scaling.type", "linear")) {
            char name[KEY_BYTES];
            full_key(builder, "rope.scaling.type", name);
            const char *text = "";
            size_t length = 0;
            gguf_get_string(builder->model->file, name, &text, &length);
            builder_fail(builder, NPU_ERROR_UNSUPPORTED,
                         "metadata %s is \"%.*s\"; supported are \"none\" and \"linear\"", name,
                         (int)(length < 40 ? length : 40), text);
            return 1.0;
        }
    }
    /* rope.scale_linear is the key's older name. Zero means that nothing is scaled. */
    double factor =
        builder_float_or(builder, "rope.scaling.factor", builder_float_or(builder, "rope.scale_linear", 0.0));
    if (factor < 0.0)
        builder_fail(builder, NPU_ERROR_INPUT, "the rope scaling factor is %g; it must be positive", factor);
    return factor > 0.0 ? 1.0 / factor : 1.0;
}

void rope_angles(const struct rope *rope, int32_t position, float *cosines_sines)
{
    int pairs = rope->dims / 2;
    for (int i = 0; i < pairs; i++) {
        double frequency = pow(rope->base, -2.0 * i / rope->dims);
        if (rope->factors)
            frequency /= rope->factors[i];
        double angle = position * rope->position_scale * frequency;
        cosines_sines[i] = (float)cos(angle);
        cosines_sines[pairs + i] = (float)sin(angle);
    }
}

/* What every architecture has, and what no architecture here can do. */
static void read_common(struct model_builder *builder)
{
    struct model *model = builder->model;
    int64_t splits;
    if (gguf_get_int(model->file, "split.count", &splits) && splits > 1) {
        builder_fail(builder, NPU_ERROR_UNSUPPORTED,
                     "one of %lld parts of a split model; merge them into one file first", (long long)splits);
        return;
    }
    model->n_layers = (int)builder_int(builder, "block_count", 1, 1024);
    model->n_embd = (int)builder_int(builder, "embedding_length", 1, 1 << 18);
    model->trained_context = builder_int(builder, "context_length", 1, INT32_MAX);
    int64_t pooling = builder_int_or(builder, "pooling_type", 0, INT32_MAX, 0);
    model->pooling = pooling == 1 ? POOLING_MEAN : pooling == 3 ? POOLING_LAST : POOLING_NONE;
    const struct gguf_tensor *table = gguf_find_tensor(model->file, "token_embd.weight");
    if (table == NULL) {
        builder_fail(builder, NPU_ERROR_INPUT, "tensor token_embd.weight is missing");
        return;
    }
    if (table->dims[1] < 1 || table->dims[1] > 1 << 24) {
        builder_fail(builder, NPU_ERROR_INPUT, "tensor token_embd.weight has %lld rows; it must have 1 to %d",
                     (long long)table->dims[1], 1 << 24);
        return;
    }
    model->n_vocab = (int)table->dims[1];
    int64_t n_tokens;
    if (gguf_get_array_length(model->file, "tokenizer.ggml.tokens", &n_tokens) && n_tokens != model->n_vocab)
        builder_fail(builder, NPU_ERROR_INPUT,
                     "tensor token_embd.weight has %d rows, but tokenizer.ggml.tokens has %lld", model->n_vocab,
                     (long long)n_tokens);
}

static enum npu_status find_architecture(struct model *model, int *ret_index, struct npu_error *error)
{
    const char *text;
    size_t length;
    if (!gguf_get_string(model->file, "general.architecture", &text, &length))
        return npu_error_set(error, NPU_ERROR_INPUT, "%s: metadata general.architecture is missing or not a string",
                             gguf_path(model->file));
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        if (strlen(architectures[i].name) == length && memcmp(architectures[i].name, text, length) == 0) {
            snprintf(model->architecture, sizeof model->architecture, "%s", architectures[i].name);
            *ret_index = i;
            return NPU_OK;
        }
    }
    char known[128] = "";
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", architectures[i].name);
    }
    return npu_error_set(error, NPU_ERROR_UNSUPPORTED, "%s: architecture \"%.*s\" is not supported (supported: %s)",
                         gguf_path(model->file), (int)(length < 40 ? length : 40), text, known);
}

enum npu_status model_create(struct model **ret_model, const struct gguf_file *file, struct npu_error *error)
{
    struct npu_error unread;
    if (error == NULL)
        error = &unread;
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the model");
    model->file = file;
    struct model_builder builder = {.model = model, .error = error, .weights_capacity = gguf_n_tensors(file)};
    int architecture = 0;
    enum npu_status status = find_architecture(model, &architecture, error);
    if (status != NPU_OK)
        goto failed;
    model->weights = calloc((size_t)builder.weights_capacity + 1, sizeof *model->weights);
    if (model->weights == NULL) {
        status = npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the model's weights");
        goto failed;
    }
    read_common(&builder);
    if (!builder.failed)
        architectures[architecture].build(&builder);
    status = builder.failed ? error->status : graph_finish(&model->graph, error);
    if (status != NPU_OK)
        goto failed;
    *ret_model = model;
    return NPU_OK;

failed:
    model_destroy(model);
    return status;
}

void model_destroy(struct model *model)
{
    if (model == NULL)
        return;
    graph_destroy(&model->graph);
    free(model->kv_layers);
    free(model->weights);
    free(model);
}
