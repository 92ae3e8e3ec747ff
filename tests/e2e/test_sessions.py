"""Conversations keep their KV cache: what was computed once is not computed again, and changes nothing."""
SYSTEM = "<|im_start|>system\nYou are a helpful assistant that answers in short sentences and never lies.<|im_end|>\n"


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def ask(npud, history, **fields):
    return npud.complete(history + "<|im_start|>assistant\n", max_tokens=24, **fields)


def cached(answer):
    details = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert details == answer["timings"]["cached_n"]
    assert answer["timings"]["prompt_n"] + details == answer["usage"]["prompt_tokens"]
    return details


def test_turn_two_costs_its_new_tokens_only(npud):
    history = SYSTEM + turn("user", "Tell me something about the sea, the moon and the tides.")
    first = ask(npud, history)
    assert cached(first) == 0
    history += turn("assistant", first["choices"][0]["text"]) + turn("user", "And about rivers?")
    second = ask(npud, history)
    # All of turn one: its prompt, and its answer's tokens but the last, which was never fed back.
    assert cached(second) >= first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] - 2


def test_two_chats_side_by_side_keep_both_pasts(npud):
    histories = [SYSTEM + turn("user", f"My name is {name}. What do you know about {topic}?")
                 for name, topic in (("Ann", "trains"), ("Bob", "planes"))]
    answers = [ask(npud, history) for history in histories]
    for i in range(2):
        histories[i] += turn("assistant", answers[i]["choices"][0]["text"]) + turn("user", "Go on.")
        assert cached(ask(npud, histories[i])) >= answers[i]["usage"]["prompt_tokens"]


def test_cached_prefix_changes_no_logprob(npud, start):
    fresh = start()
    history = turn("user", "Write one sentence about bees and flowers, and one about honey.")
    prompt = history + "<|im_start|>assistant\n"
    fields = {"max_tokens": 24, "logprobs": 3}
    cold = fresh.complete(prompt, **fields)
    npud.complete(history, max_tokens=1)
    warm = npud.complete(prompt, **fields)
    assert cached(cold) == 0 and cached(warm) > 0
    assert warm["choices"] == cold["choices"]
    assert fresh.complete(prompt, **fields)["choices"] == cold["choices"]


def test_edited_history_is_cut_back_not_lost(npud):
    history = SYSTEM + turn("user", "List some animals that live in the forest." + " Take your time." * 12)
    first = ask(npud, history)
    edited = SYSTEM + turn("user", "List some animals that live in the desert." + " Take your time." * 12)
    assert 0 < cached(ask(npud, edited)) < first["usage"]["prompt_tokens"]
    again = ask(npud, history)
    assert again["choices"] == first["choices"]


def test_same_prompt_again_computes_its_last_token_only(npud):
    prompt = SYSTEM + turn("user", "Is this a question?")
    first = npud.complete(prompt)
    second = npud.complete(prompt)
    assert second["timings"]["prompt_n"] >= 1
    assert cached(second) >= first["usage"]["prompt_tokens"] - 32
    assert second["choices"] == first["choices"]


def test_full_pool_forgets_the_oldest_and_goes_on(start):
    npud = start("--context", "256", "--parallel", "1")
    texts = {}
    for i in range(12):
        prompt = turn("user", f"Number {i}: " + "count on, " * 50)
        texts[prompt] = npud.text(prompt, max_tokens=8)
    for prompt, text in texts.items():
        assert npud.text(prompt, max_tokens=8) == text
