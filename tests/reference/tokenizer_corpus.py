"""The texts on which the tokenizer is compared with Hugging Face's: many scripts, emoji, code, white space, numbers,
contractions, control tokens, long runs, and bytes that are not UTF-8. Characters are of Unicode 14 or older, so that
every PCRE2 and every tokenizers release agree on their class."""

import random

PROSE = [
    "",
    "a",
    " ",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog, 1,234.56 times in 2024; doesn't it? \"Yes\", said Anna (aged 9).",
    "Grüße aus Köln! Der Fluß fließt, das Straßenfest beginnt um 18:30 Uhr – Eintritt 5 €.",
    "L'été, les élèves n'étudient pas ; aujourd'hui, c'est « fête ».",
    "El niño comió piñas en Cádiz. ¿Verdad? ¡Claro que sí!",
    "A ação começou às três; não há pão.",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "İstanbul'da güneşli bir gün; ığdır ve şişli.",
    "Tiếng Việt có nhiều dấu: ngã, hỏi, nặng, sắc, huyền.",
    "Η γρήγορη αλεπού πηδάει πάνω από το σκυλί. Ἐν ἀρχῇ ἦν ὁ λόγος.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак, ґанок, є.",
    "שלום עולם! מה שלומך היום? בְּרֵאשִׁית",
    "مرحبا بالعالم، كيف حالك؟ العدد ١٢٣٤ والسنة ٢٠٢٤. این فارسی است: می‌خواهم",
    "नमस्ते दुनिया। यह हिन्दी है १२३। বাংলা ভাষা ৪৫৬। தமிழ் மொழி ௭௮௯। తెలుగు భాష",
    "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง ๑๒๓ ສະບາຍດີ ភាសាខ្មែរ ១២៣ မြန်မာဘာသာ",
    "გამარჯობა მსოფლიო. Բարեւ աշխարհ։ ሰላም ልዑል። ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ བོད་སྐད་ ᠮᠣᠩᠭᠣᠯ᠎ᠠ",
    "你好，世界！今天是2024年3月5日，星期二。繁體中文：龍馬精神。",
    "こんにちは世界。ひらがな・カタカナ・漢字、ﾊﾝｶｸ、１２３４５。東京タワーは３３３ｍです。",
    "안녕하세요 세계! 오늘은 날씨가 좋네요. ㄱㄴㄷ ㅏㅑ",
    "𝒜𝓁𝓅𝒽𝒶 𝟙𝟚𝟛 ℕ ⊂ ℤ ⊂ ℚ ⊂ ℝ ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, ∑ᵢ xᵢ² ≥ 0 ½ ⅔ Ⅷ ⅻ ① ⑳ ²³",
    "e\u0301le\u0301ve na\u0308ive Z\u0351\u036b\u0343a\u0321\u034al\u0336g\u0489o\u0315",
    "A\u030a\u0323 \u1112\u1161\u11ab \u0958 \u2126 \ufb01",
]

EMOJI = [
    "😀 😂🤣 👍🏽 ❤️ ☃️ ✈",
    "👩‍🔬👨‍👩‍👧‍👦🏳️‍🌈🧑🏿‍🚀",
    "🇩🇪🇫🇷🇯🇵 #️⃣ 1️⃣ *️⃣",
    "text😀text 😀😀  😀\n😀",
    "🫠🫶🏻",
]

CODE = [
    "int main(void)\n{\n\tfor (int i = 0; i < 10; ++i)\n\t\tprintf(\"%d\\n\", i * 2);\n\treturn 0;\n}\n",
    "def f(x: int) -> dict[str, int]:\n    \"\"\"Doc.\"\"\"\n    return {k: v ** 2 for k, v in enumerate('abc')}\n\n\n",
    "<div class=\"a-b_c\" id='x'><!-- note --><p>1 &lt; 2</p></div>",
    "{\"key\": [1, 2.5e-10, null, true], \"s\": \"\\u00e9\\n\"}",
    "SELECT * FROM t WHERE a>=1 AND b<>'x' -- comment\n;",
    "https://example.org/a/b?c=d&e=%20f#frag user@example.com C:\\dir\\file.txt $HOME/~x ${A:-b}",
    "x+=1;y-=2;z**=3; a&&b||!c; p->q; a::b; /* c */ // d\r\n\r\n#if 0\r\n#endif",
    "\\(\\alpha^{2}_{i}\\) $$\\frac{a}{b}$$ [x](y) **bold** _it_ `code` ```\nblock\n``` ~~~ ||| ^^^ === <<< >>>",
    "camelCaseWord snake_case_word SCREAMING_CASE kebab-case-word v1.2.3-rc4+build5 0xDEADBEEF 1e6 3.14159",
]

SPACE = [
    "  two", "two  ", "a  b", "a   b    c     d", " a", "\ta", "\t\ta", "a\t b", "a \t b", "\n", "\n\n", "\n\n\n", "a\n",
    "a\n\nb", "a\n \nb", "a \n b", "a\r\nb", "a\r\n\r\nb", "a\rb", " \n", "\n ", "  \n  \n  x", "\n\n  x", "x \n\n\n",
    "a\u00a0b", "a\u00a0\u00a0b", "\u3000\u3000段落", "a\u2003\u2003b", "a\u2028b\u2029c", "a\u202fb", "a\u1680b", "a\u0085b",
    "a\u200bb", "a\u200d\u200cb", "\ufeffBOM", "a\u180eb", "a \u180e b", "soft\u00adhyphen", "a\x0bb\x0cc", "\x1c\x1d\x1e\x1f",
    "nul\0in\0side", "\x01\x02\x03\x04\x05\x06\x07\x08", "\x7f\u0080\u009f", "! ?", " !", "  !", "!\n", "!\n\n", "! \n", "1 2  3   4",
    " 1", "  1", "a1 b2", "  \u0301x", " \u200d",
]

NUMBERS = [
    "1", "12", "123", "1234", "12345", "1234567890", "1,234,567.89", "3.14", "2024-03-05T12:34:56Z", "+49 (0)221 123-45 67",
    "a1b22c333d4444", "١٢٣٤٥", "१२३४", "１２３４５", "²³¹ ½¼ Ⅷ 三", "1st 2nd 3rd 4th", "10% 5° 7′ 8″", "1 000 000", "0x1F 0b101 1_000",
]

CONTRACTIONS = [
    "I'm you're he's she'd we'll they've can't", "I'M YOU'RE HE'S SHE'D WE'LL THEY'VE CAN'T", "I’m you’re he’s", "'s 't 're 've 'm 'll 'd",
    "'S'T'RE", "rock'n'roll 'tis o'clock l'eau d'or", "x's's", "''s ''", "'\u017f '\u017fx \u212a'\u017f", "it 's 'sound 'thing 'really 'velvet 'more",
    "'sé 'llé", "5's 1980's", "!'s", " 's",
]

SPECIAL = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|>", "a<|endoftext|>b", "<|im_start|><|im_start|>",
    " <|im_end|> ", "<|im_end|", "<|im_endx|>", "<<|im_end|>>", "<|im_start|im_start|>", "<repo_name>x<file_sep>y<filename>",
    "<reponame><repo_name>", "<empty_output>\n\n<jupyter_code>", "'s<|im_end|>'s", "1<|im_end|>2", "é<|im_end|>é", "  <|im_end|>  ",
]

RUNS = ["a" * 300, "ab" * 200, " " * 100, "\n" * 70, "\t" * 40, "1" * 50, "!" * 100, "-" * 90, "é" * 50, "漢" * 50, "😀" * 20,
        "a " * 60, " \n" * 30, "ha" * 50 + "!" * 20, "=" * 80 + "\n" + "=" * 80, "the" * 100, "A" * 65 + "b" * 65]

# Bytes that are not UTF-8 (lone continuations, cut characters, overlong forms, surrogates, above U+10FFFF) among text.
INVALID = [
    b"\xff", b"\x80", b"\xff\xfe\xfd", b"a\xffb", b"a \xff b", b"caf\xe9 au lait", b"\xe2\x82", b"\xe2\x82\xac\xe2\x82", b"\xe2\x82x",
    b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xf0\x9f\x98 \xf0\x9f\x98\x80", b"12\xff34", b"'\xffs 's\xff", b"\n\xff\n\n",
    b"  \xff  ", b"\xff\xff \xff\n\xff", b"\xc3(\xc3\xa9)", b"\xef\xbf\xbd\xef\xbf", b"<|im_end|>\xff<|im_end|>", b"\xe4\xbd\xa0\xe5\xa5", b"abc\x80\x80\x80def",
    bytes(range(128, 256)), bytes(range(256)),
]

# What random texts are made of: every class of characters that a pattern tells apart.
PARTS = (["a", "Z", "é", "ß", "漢", "क", "ا", "word", "s", "t", "ll"] * 3
         + ["1", "٣", "²", "Ⅷ", "½", "42"] * 2
         + ["\u0301", "\u093f", "\u20e3", "\ufe0f", "\u200d"]
         + list("!-$+<^~|`_,.#") + ["’", "“", "—", "€", "☃", "😀"]
         + ["'", "'s", "'S", "'ll", "'RE", "'d", "'\u017f"]
         + [" "] * 8 + ["\n"] * 4 + ["\t", "\r", "\r\n", "\x0b", "\x0c", "\u0085", "\u00a0", "\u1680", "\u2003", "\u2028", "\u202f", "\u3000"]
         + ["\u180e", "\u200b", "\ufeff", "\u00ad", "\0", "\x01", "\x1f", "\x7f", "\ufffd", "\ue000", "\U0010ffff", "\ufdd0"])


def cases():
    """(bytes, parse_special) of each case, always the same ones in the same order."""
    texts = PROSE + EMOJI + CODE + SPACE + NUMBERS + CONTRACTIONS + RUNS
    generator = random.Random(20240305)
    for _ in range(400):
        texts.append("".join(generator.choice(PARTS) for _ in range(generator.randint(1, 14))))
    result = [(text.encode(), True) for text in texts]
    result += [(text.encode(), special) for text in SPECIAL for special in (True, False)]
    result += [(data, True) for data in INVALID]
    for _ in range(60):
        valid = "".join(generator.choice(PARTS) for _ in range(8)).encode()
        at = generator.randrange(len(valid))
        result.append((valid[:at] + bytes([generator.randrange(128, 256)]) + valid[at + generator.randrange(2):], True))
    return result
