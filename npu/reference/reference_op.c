#include "npu/reference/reference_op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npu/dequantize.h"

static enum npu_status no_memory(struct npu_error *error)
{
    return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the reference's scratch vectors");
}

/* Row `index` of a matrix, or a whole vector with index 0. */
static void load_weight_row(const struct weight *weight, int64_t index, float *out)
{
    const char *data = weight->data;
    dequantize_row(weight->type, data + index * dequantize_row_bytes(weight->type, weight->n_in), out, weight->n_in);
}

static float *load_vector(const struct weight *weight)
{
    float *values = malloc((size_t)weight->n_in * sizeof *values);
    if (values != NULL)
        load_weight_row(weight, 0, values);
    return values;
}

/* Four sums side by side only so that the compiler can use vectors; in double their order does not matter. */
static double dot(const float *a, const float *b, int64_t n)
{
    double sums[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (int lane = 0; lane < 4; lane++)
            sums[lane] += (double)a[i + lane] * (double)b[i + lane];
    }
    for (; i < n; i++)
        sums[0] += (double)a[i] * (double)b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static void lookup(const struct op *op, const struct reference_row *row)
{
    float *out = row->activations[op->out];
    load_weight_row(op->weight, row->token, out);
    for (int64_t i = 0; i < op->weight->n_in; i++)
        out[i] *= op->scale;
}

static void embed(const struct model *model, const struct op *op, const struct reference_row *row)
{
    if (row->embedding)
        memcpy(row->activations[op->out], row->embedding, (size_t)model->n_embd * sizeof *row->embedding);
    else
        lookup(op, row);
}

static enum npu_status rms_norm(const struct op *op, const struct reference_row *rows, int n_rows,
                                struct npu_error *error)
{
    float *weight = NULL;
    if (op->weight && (weight = load_vector(op->weight)) == NULL)
        return no_memory(error);
    for (int r = 0; r < n_rows; r++) {
        for (int group = 0; group < op->n_heads; group++) {
            const float *in = rows[r].activations[op->in] + (size_t)group * (size_t)op->head_size;
            float *out = rows[r].activations[op->out] + (size_t)group * (size_t)op->head_size;
            double factor = 1.0 / sqrt(dot(in, in, op->head_size) / op->head_size + (double)op->epsilon);
            for (int i = 0; i < op->head_size; i++)
                out[i] = (float)((double)in[i] * factor * (weight ? (double)weight[i] : 1.0));
        }
    }
    free(weight);
    return NPU_OK;
}

/* Outputs [first, first + n): every weight row is dequantized once for all rows. outs[r] holds just those n. */
static enum npu_status matmul(const struct weight *weight, const struct weight *bias, const float *const *ins,
                              float *const *outs, int n_rows, int64_t first, int64_t n, struct npu_error *error)
{
    float *weight_row = malloc((size_t)weight->n_in * sizeof *weight_row);
    float *biases = bias ? load_vector(bias) : NULL;
    enum npu_status status = NPU_OK;
    if (weight_row == NULL || (bias && biases == NULL)) {
        status = no_memory(error);
        goto cleanup;
    }
    for (int64_t i = 0; i < n; i++) {
        load_weight_row(weight, first + i, weight_row);
        for (int r = 0; r < n_rows; r++)
            outs[r][i] = (float)(dot(weight_row, ins[r], weight->n_in) + (bias ? (double)biases[first + i] : 0.0));
    }
cleanup:
    free(biases);
    free(weight_row);
    return status;
}

enum npu_status reference_matmul(const struct weight *weight, const struct weight *bias, const float *in,
                                 int64_t first_output, int64_t n_outputs, float *out, struct npu_error *error)
{
    return matmul(weight, bias, &in, &out, 1, first_output, n_outputs, error);
}

static enum npu_status matmul_rows(const struct op *op, const struct reference_row *rows, int n_rows,
                                   struct npu_error *error)
{
    const float **ins = malloc((size_t)n_rows * sizeof *ins);
    float **outs = malloc((size_t)n_rows * sizeof *outs);
    enum npu_status status = NPU_OK;
    if (ins == NULL || outs == NULL) {
        status = no_memory(error);
        goto cleanup;
    }
    for (int r = 0; r < n_rows; r++) {
        ins[r] = rows[r].activations[op->in];
        outs[r] = rows[r].activations[op->out];
    }
    status = matmul(op->weight, op->bias, ins, outs, n_rows, 0, op->weight->n_out, error);
cleanup:
    free(outs);
    free(ins);
    return status;
}

static enum npu_status rotate(const struct model *model, const struct op *op, const struct reference_row *row,
                              struct npu_error *error)
{
    const struct rope *rope = &model->ropes[op->rope];
    int pairs = rope->dims / 2;
    float *angles = malloc((size_t)rope->dims * sizeof *angles);
    if (angles == NULL)
        return no_memory(error);
    rope_angles(rope, row->position, angles);
    for (int head = 0; head < op->n_heads; head++) {
        float *vector = row->activations[op->out] + (size_t)head * (size_t)op->head_size;
        for (int i = 0; i < pairs; i++) {
            float *first = &vector[rope->interleaved ? 2 * i : i];
            float *second = &vector[rope->interleaved ? 2 * i + 1 : i + pairs];
            double cosine = (double)angles[i], sine = (double)angles[pairs + i];
            double x = (double)*first, y = (double)*second;
            *first = (float)(x * cosine - y * sine);
            *second = (float)(x * sine + y * cosine);
        }
    }
    free(angles);
    return NPU_OK;
}

int32_t reference_visible_begin(const struct model *model, const struct op *op, int32_t position)
{
    if (op->window == WINDOW_SLIDING && position >= model->window)
        return position - model->window + 1;
    return 0;
}

/* scores[head][i] of the i-th visible position become weights that sum to 1. */
static void softmax(double *scores, int n)
{
    double largest = scores[0];
    for (int i = 1; i < n; i++)
        largest = scores[i] > largest ? scores[i] : largest;
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        scores[i] = exp(scores[i] - largest);
        sum += scores[i];
    }
    for (int i = 0; i < n; i++)
        scores[i] /= sum;
}

static enum npu_status attend(const struct model *model, const struct op *op, const struct reference_row *row,
                              struct npu_error *error)
{
    const struct kv_layer *layer = &model->kv_layers[op->kv_layer];
    int n_kv = layer->n_heads * layer->head_size;
    int n_out = op->n_heads * op->head_size;
    int heads_per_kv_head = op->n_heads / layer->n_heads;
    int32_t begin = reference_visible_begin(model, op, row->position);
    int n_visible = row->visible_end - begin;
    const float *query = row->activations[op->in];
    float *out = row->activations[op->out];
    float *kv = malloc((size_t)n_kv * sizeof *kv);
    double *scores = malloc((size_t)op->n_heads * (size_t)n_visible * sizeof *scores);
    double *sums = calloc((size_t)n_out, sizeof *sums);
    enum npu_status status = NPU_OK;
    if (kv == NULL || scores == NULL || sums == NULL) {
        status = no_memory(error);
        goto cleanup;
    }
    for (int i = 0; i < n_visible; i++) {
        row->kv.read(row->kv.context, op->kv_layer, begin + i, kv, NULL);
        for (int head = 0; head < op->n_heads; head++)
            scores[head * n_visible + i] =
                (double)op->scale *
                dot(query + head * op->head_size, kv + head / heads_per_kv_head * layer->head_size, op->head_size);
    }
    for (int head = 0; head < op->n_heads; head++)
        softmax(scores + (size_t)head * (size_t)n_visible, n_visible);
    for (int i = 0; i < n_visible; i++) {
        row->kv.read(row->kv.context, op->kv_layer, begin + i, NULL, kv);
        for (int head = 0; head < op->n_heads; head++) {
            const float *value = kv + head / heads_per_kv_head * layer->head_size;
            double share = scores[head * n_visible + i];
            for (int j = 0; j < op->head_size; j++)
                sums[head * op->head_size + j] += share * (double)value[j];
        }
    }
    for (int i = 0; i < n_out; i++)
        out[i] = (float)sums[i];
cleanup:
    free(sums);
    free(scores);
    free(kv);
    return status;
}

static double activate(enum activation_function function, double x)
{
    switch (function) {
    case ACTIVATION_SILU:
        return x / (1.0 + exp(-x));
    case ACTIVATION_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 /* sqrt(2/pi) */ * (x + 0.044715 * x * x * x)));
    }
    return x;
}

static void gate(const struct op *op, const struct reference_row *row)
{
    const float *in = row->activations[op->in], *in2 = row->activations[op->in2];
    float *out = row->activations[op->out];
    for (int i = 0; i < op->width; i++)
        out[i] = (float)(activate(op->function, (double)in[i]) * (double)in2[op->in2_offset + i]);
}

static void add(const struct op *op, const struct reference_row *row)
{
    const float *in = row->activations[op->in], *in2 = row->activations[op->in2];
    float *out = row->activations[op->out];
    for (int i = 0; i < op->width; i++)
        out[i] = in[i] + in2[i];
}

static void scale(const struct op *op, const struct reference_row *row)
{
    for (int i = 0; i < op->width; i++)
        row->activations[op->out][i] = op->scale * row->activations[op->in][i];
}

static void softcap(const struct op *op, const struct reference_row *row)
{
    double cap = (double)op->scale;
    for (int i = 0; i < op->width; i++)
        row->activations[op->out][i] = (float)(cap * tanh((double)row->activations[op->in][i] / cap));
}

static void kv_write(const struct op *op, const struct reference_row *row)
{
    row->kv.write(row->kv.context, op->kv_layer, row->position, row->activations[op->in], row->activations[op->in2]);
}

enum npu_status reference_op_run(const struct model *model, const struct op *op, const struct reference_row *rows,
                                 int n_rows, struct npu_error *error)
{
    if (op->kind == OP_RMS_NORM)
        return rms_norm(op, rows, n_rows, error);
    if (op->kind == OP_MATMUL)
        return matmul_rows(op, rows, n_rows, error);
    enum npu_status status = NPU_OK;
    for (int r = 0; r < n_rows && status == NPU_OK; r++) {
        switch (op->kind) {
        case OP_EMBED:
            embed(model, op, &rows[r]);
            break;
        case OP_ROPE:
            status = rotate(model, op, &rows[r], error);
            break;
        case OP_KV_WRITE:
            kv_write(op, &rows[r]);
            break;
        case OP_ATTENTION:
            status = attend(model, op, &rows[r], error);
            break;
        case OP_GATED:
            gate(op, &rows[r]);
            break;
        case OP_ADD:
            add(op, &rows[r]);
            break;
        case OP_SCALE:
            scale(op, &rows[r]);
            break;
        case OP_SOFTCAP:
            softcap(op, &rows[r]);
            break;
        case OP_LOOKUP:
            lookup(op, &rows[r]);
            break;
        case OP_RMS_NORM:
        case OP_MATMUL:
        case OP_GATHER:
            break;
        }
    }
    return status;
}
