"""POST /v1/completions through the official client: whole and streamed answers, every field, every limit."""
import math

import openai
import pytest

PARIS = "The capital of France is"
CHAT = "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"


def create(client, prompt=PARIS, **fields):
    return client.completions.create(model="any", prompt=prompt, **{"temperature": 0, "max_tokens": 16, **fields})


def stream_text(client, **fields):
    return "".join(chunk.choices[0].text for chunk in create(client, stream=True, **fields) if chunk.choices)


# ---- answers ----


@pytest.mark.short
def test_whole_answer_has_every_part(client):
    answer = create(client)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert "SmolLM2" in answer.model
    assert answer.choices[0].text.startswith(" Paris")
    assert answer.choices[0].finish_reason == "length" and answer.choices[0].index == 0
    assert answer.choices[0].logprobs is None
    assert answer.usage.prompt_tokens == 5 and answer.usage.completion_tokens == 16
    assert answer.usage.total_tokens == 21
    timings = answer.model_dump()["timings"]
    assert timings["predicted_n"] == 16 and timings["prompt_n"] + timings["cached_n"] == 5
    assert timings["predicted_per_second"] > 0


@pytest.mark.short
def test_stream_gives_the_whole_answers_text(client):
    assert stream_text(client) == create(client).choices[0].text


def test_stream_ends_with_finish_reason_then_usage(client):
    chunks = list(create(client, stream=True, stream_options={"include_usage": True}))
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 16
    assert len({chunk.id for chunk in chunks}) == 1


def test_stream_without_include_usage_has_none(client):
    assert all(chunk.usage is None for chunk in create(client, stream=True))


def test_generation_ends_at_the_end_of_turn_token(client):
    answer = create(client, CHAT, max_tokens=200)
    assert answer.choices[0].finish_reason == "stop"
    assert "<|im_end|>" not in answer.choices[0].text


def test_ignore_eos_goes_on_to_max_tokens(client):
    answer = create(client, CHAT, max_tokens=200, extra_body={"ignore_eos": True})
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 200


def test_default_is_sixteen_tokens(client):
    assert client.completions.create(model="any", prompt=PARIS).usage.completion_tokens <= 16


def test_any_model_name_is_served(client):
    assert create(client, max_tokens=1).model == client.completions.create(model="gpt-4", prompt="x", max_tokens=1).model


def test_unknown_fields_and_nulls_are_ignored(npud):
    answer = npud.complete(PARIS, colour="blue", stop=None, logprobs=None, seed=None, stream=None, user="me")
    assert answer["choices"][0]["text"] == npud.text(PARIS)


# ---- prompts ----


PARIS_TOKENS = [504, 3575, 282, 4649, 314]


def test_tokens_are_as_good_as_text(client):
    text = create(client).choices[0].text
    assert create(client, PARIS_TOKENS).choices[0].text == text
    assert [choice.text for choice in create(client, [PARIS_TOKENS, PARIS_TOKENS]).choices] == [text, text]


def test_several_prompts_give_one_choice_each(client):
    answer = create(client, [PARIS, "One two three"], n=2)
    alone = [create(client, prompt).choices[0].text for prompt in (PARIS, "One two three")]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == [alone[0], alone[0], alone[1], alone[1]]
    assert answer.usage.prompt_tokens == sum(create(client, p).usage.prompt_tokens for p in (PARIS, "One two three"))


def test_empty_prompt_starts_a_text(client):
    answer = create(client, "")
    assert answer.usage.prompt_tokens == 1 and answer.usage.completion_tokens >= 1


def test_prompt_past_the_context_is_refused_with_both_numbers(client):
    with pytest.raises(openai.BadRequestError) as error:
        create(client, [5] * 5000)
    assert error.value.code == "context_length_exceeded"
    assert "5000" in error.value.message and "4096" in error.value.message


def test_generation_ends_with_the_context(start):
    npud = start("--context", "64")
    answer = npud.complete([5] * 60, max_tokens=100, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5  # at positions 60 to 63, and the one that follows them
    assert npud.complete([5] * 64, max_tokens=100)["usage"]["completion_tokens"] == 1
    assert npud.post(prompt=[5] * 65).json()["error"]["code"] == "context_length_exceeded"


# ---- logprobs, echo ----


def test_logprobs_are_sorted_and_hold_the_chosen_token(client):
    logprobs = create(client, logprobs=5).choices[0].logprobs
    assert "".join(logprobs.tokens) == create(client).choices[0].text
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert 1 <= len(top) <= 6
        assert logprob == max(top.values()) and top[token] == logprob  # greedy
        assert sum(math.exp(value) for value in top.values()) <= 1.0001
    assert logprobs.text_offset[0] == 0


def test_logprobs_zero_gives_only_the_chosen(client):
    logprobs = create(client, logprobs=0).choices[0].logprobs
    assert all(len(top) == 1 for top in logprobs.top_logprobs)


def test_streamed_logprobs_are_those_of_the_whole_answer(client):
    whole = create(client, logprobs=3).choices[0].logprobs
    chunks = [chunk.choices[0].logprobs for chunk in create(client, logprobs=3, stream=True) if chunk.choices]
    for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [value for chunk in chunks if chunk for value in getattr(chunk, field)]
        assert streamed == getattr(whole, field), field


def test_echo_comes_first_with_logprobs(client):
    choice = create(client, echo=True, logprobs=1, max_tokens=4).choices[0]
    assert choice.text.startswith(PARIS)
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in choice.logprobs.token_logprobs[1:])
    text = choice.text
    for token, offset in zip(choice.logprobs.tokens, choice.logprobs.text_offset, strict=True):
        assert text[offset:offset + len(token)] == token


def test_echo_with_no_new_tokens_scores_the_prompt(client):
    answer = create(client, echo=True, logprobs=0, max_tokens=0)
    assert answer.choices[0].text == PARIS and answer.usage.completion_tokens == 0
    assert len(answer.choices[0].logprobs.tokens) == answer.usage.prompt_tokens


def test_echoed_logprobs_are_the_generated_ones(client):
    generated = create(client, logprobs=0, max_tokens=8).choices[0]
    scored = create(client, PARIS + generated.text, echo=True, logprobs=0, max_tokens=0).choices[0].logprobs
    assert scored.tokens[-8:] == generated.logprobs.tokens
    assert scored.token_logprobs[-8:] == generated.logprobs.token_logprobs


# ---- choosing tokens ----


def test_seed_decides(client):
    texts = [create(client, temperature=1.2, seed=seed, max_tokens=32).choices[0].text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_choices_of_one_request_differ_and_are_repeatable(client):
    answers = [create(client, temperature=1, seed=7, n=4, max_tokens=24) for _ in range(2)]
    texts = [[choice.text for choice in answer.choices] for answer in answers]
    assert texts[0] == texts[1] and len(set(texts[0])) == 4


def test_stream_of_several_choices(client):
    whole = create(client, temperature=1, seed=3, n=3)
    texts = ["", "", ""]
    finished = []
    for chunk in create(client, temperature=1, seed=3, n=3, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
        if chunk.choices[0].finish_reason:
            finished.append(chunk.choices[0].index)
    assert texts == [choice.text for choice in whole.choices] and sorted(finished) == [0, 1, 2]


def test_top_k_one_is_greedy(client):
    text = create(client).choices[0].text
    assert create(client, temperature=2, extra_body={"top_k": 1}).choices[0].text == text
    assert create(client, temperature=2, top_p=0).choices[0].text == text
    assert create(client, temperature=2, extra_body={"min_p": 1}).choices[0].text == text


def test_penalties_change_a_repeating_text(client):
    prompt = "spam spam spam spam spam spam spam"
    plain = create(client, prompt, max_tokens=24).choices[0].text
    assert create(client, prompt, max_tokens=24, extra_body={"repeat_penalty": 1.8}).choices[0].text != plain
    assert create(client, prompt, max_tokens=24, frequency_penalty=2).choices[0].text != plain
    plain = create(client, "Once upon a time", max_tokens=60).choices[0].text
    assert create(client, "Once upon a time", max_tokens=60, presence_penalty=2).choices[0].text != plain


def test_logit_bias_forces_and_forbids(client):
    forced = create(client, logit_bias={"28": 100}, max_tokens=4, logprobs=0).choices[0]
    assert len(set(forced.logprobs.tokens)) == 1
    first = create(client, max_tokens=1).choices[0].text
    tokens = {}
    for token in range(0, 400):
        tokens[str(token)] = -100
    assert create(client, max_tokens=1, logit_bias=tokens).choices[0].text == first  # " Paris" is none of them


# ---- stop ----


def test_stop_string_ends_the_text_and_is_not_in_it(client):
    text = create(client, max_tokens=40).choices[0].text
    for stop in (text[3:9], text[5:6], text[4:20]):
        answer = create(client, max_tokens=40, stop=stop).choices[0]
        assert answer.finish_reason == "stop" and answer.text == text[:text.index(stop)]
        assert stream_text(client, max_tokens=40, stop=stop) == answer.text


def test_first_of_several_stops_wins(client):
    text = create(client, max_tokens=40).choices[0].text
    stops = [text[20:24], text[6:9], "never comes"]
    expected = text[:min(text.index(stop) for stop in stops[:2])]
    assert create(client, max_tokens=40, stop=stops).choices[0].text == expected


def test_stop_that_does_not_come_holds_nothing_back(client):
    text = create(client).choices[0].text
    answer = create(client, stop=text[-3:] + "\x01").choices[0]
    assert answer.text == text and answer.finish_reason == "length"


def test_logprobs_end_where_the_text_does(client):
    text = create(client, max_tokens=40).choices[0].text
    choice = create(client, max_tokens=40, stop=text[9:14], logprobs=1).choices[0]
    assert "".join(choice.logprobs.tokens).startswith(choice.text)


# ---- limits: at the edge, and past it ----

TAKEN = [
    {"temperature": 0}, {"temperature": 2}, {"top_p": 0}, {"top_p": 1}, {"min_p": 0}, {"min_p": 1}, {"top_k": 0},
    {"top_k": -1}, {"top_k": 2**31 - 1}, {"presence_penalty": -2}, {"presence_penalty": 2}, {"frequency_penalty": -2},
    {"frequency_penalty": 2}, {"repeat_penalty": 0.01}, {"repeat_penalty": 10}, {"logprobs": 0}, {"logprobs": 20},
    {"n": 1}, {"max_tokens": 1}, {"max_tokens": 2.0}, {"seed": -2**63}, {"seed": 2**63 - 1}, {"logit_bias": {}},
    {"logit_bias": {"0": -100, "49151": 100}}, {"stop": []}, {"stop": ["x"] * 16}, {"stop": "x" * 4096},
    {"prompt_cache_key": "k" * 512}, {"prompt": [0]}, {"prompt": [49151]}, {"prompt": [[1], [2]]}, {"prompt": ["a"]},
]
REFUSED = [
    ({"temperature": -0.01}, "temperature"), ({"temperature": 2.01}, "temperature"), ({"temperature": "1"}, "temperature"),
    ({"top_p": -0.01}, "top_p"), ({"top_p": 1.01}, "top_p"), ({"min_p": 1.01}, "min_p"), ({"top_k": -2}, "top_k"),
    ({"top_k": 1.5}, "top_k"), ({"presence_penalty": -2.01}, "presence_penalty"),
    ({"presence_penalty": 2.01}, "presence_penalty"), ({"frequency_penalty": 2.01}, "frequency_penalty"),
    ({"repeat_penalty": 0}, "repeat_penalty"), ({"repeat_penalty": 10.1}, "repeat_penalty"), ({"logprobs": -1}, "logprobs"),
    ({"logprobs": 21}, "logprobs"), ({"logprobs": True}, "logprobs"), ({"n": 0}, "n"), ({"n": 129}, "n"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 2**31}, "max_tokens"), ({"seed": 2**63}, None), ({"seed": 1.5}, "seed"),
    ({"logit_bias": {"49152": 1}}, "logit_bias.49152"), ({"logit_bias": {"-1": 1}}, "logit_bias.-1"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1"), ({"logit_bias": [1]}, "logit_bias"), ({"stop": ["x"] * 17}, "stop"),
    ({"stop": ""}, "stop"), ({"stop": ["x", 1]}, "stop[1]"), ({"stop": "x" * 4097}, "stop"), ({"echo": 1}, "echo"),
    ({"stream": "yes"}, "stream"), ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"), ({"best_of": 2}, "best_of"),
    ({"suffix": "x"}, "suffix"), ({"prompt": None}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": 7}, "prompt"),
    ({"prompt": [49152]}, "prompt[0]"), ({"prompt": [1, -1]}, "prompt[1]"), ({"prompt": [1, "a"]}, "prompt[1]"),
    ({"prompt": ["a", 1]}, "prompt[1]"), ({"prompt": [[]]}, "prompt[0]"), ({"prompt": {}}, "prompt"),
    ({"prompt_cache_key": "k" * 513}, "prompt_cache_key"), ({"model": 1}, "model"),
]


@pytest.mark.parametrize("fields", TAKEN, ids=lambda fields: str(fields)[:40])
def test_value_at_the_limit_is_taken(npud, fields):
    answer = npud.post(**{"prompt": "a", "max_tokens": 1, **fields})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("fields, param", REFUSED, ids=lambda value: str(value)[:40])
def test_value_past_the_limit_is_refused_by_name(npud, fields, param):
    answer = npud.post(**{"prompt": "a", "max_tokens": 1, **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and error["code"]
    if param:
        assert error["param"] == param and param.split("[")[0].split(".")[0] in error["message"]


def test_client_sees_error_classes(client):
    with pytest.raises(openai.BadRequestError) as error:
        create(client, temperature=3)
    assert error.value.param == "temperature" and error.value.code == "invalid_value"
    with pytest.raises(openai.NotFoundError):
        client.files.list()


def test_128_choices(client):
    answer = create(client, n=128, max_tokens=1, temperature=1, seed=1)
    assert [choice.index for choice in answer.choices] == list(range(128))


def test_models_are_listed(client):
    models = client.models.list().data
    assert [model.id for model in models] == ["SmolLM2-135M-Instruct.Q4_1"]
    assert client.models.retrieve(models[0].id) == models[0]
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("another")
    assert raised.value.code == "model_not_found"
