"""Loaded by schemathesis: what the description allows but would take long is asked for in small."""
import schemathesis

FEW = {"max_tokens": 2, "max_completion_tokens": 2, "max_output_tokens": 2, "n": 2, "timeout_ms": 2000}
GENERATES = ("/v1/completions", "/v1/chat/completions")


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if not isinstance(body, dict):
        return
    for name, most in FEW.items():
        if is_count(body.get(name)):
            body[name] = min(body[name], most)
    if case.operation.path == "/v1/responses" and "max_output_tokens" not in body:
        body["max_output_tokens"] = 2
    if case.operation.path in GENERATES and not {"max_tokens", "max_completion_tokens"} & set(body):
        body["max_tokens"] = 2
