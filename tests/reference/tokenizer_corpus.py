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
    "<think>\n\nno</think>\n<tool_call>{\"name\": 1}</tool_call>", "e<|im_end|>\u0301", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n", "<eos><pad><unk><mask>", "<bos><|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\n\n<channel|> <|\"|>x<|\"|>",
    "[multimodal] <h1>x</h1>\n\n<td>  </td>\t\t<0x41>",
]

RUNS = ["a" * 300, "ab" * 200, " " * 100, "\n" * 70, "\t" * 40, "1" * 50, "!" * 100, "-" * 90, "é" * 50, "漢" * 50, "😀" * 20,
        "a " * 60, " \n" * 30, "ha" * 50 + "!" * 20, "=" * 80 + "\n" + "=" * 80, "the" * 100, "A" * 65 + "b" * 65]

# What normalization form C changes: marks apart from their letters or in another order, jamo, singletons, compositions that
# Unicode excludes; and what it must leave alone.
NOT_COMPOSED = [
    "Cafe\u0301 cre\u0300me, nai\u0308ve, A\u030angstro\u0308m, Franc\u0327ais, man\u0303ana, Stra\u00dfe",
    "Tie\u0302\u0301ng Vie\u0323\u0302t co\u0301 nhie\u0302\u0300u da\u0302\u0301u, tru\u031bo\u031b\u0301c",
    "\u03b1\u0313\u0301\u0345 \u03c9\u0342\u0345 \u0391\u0314\u0300 \u03b9\u0308\u0301 \u1f71\u1f73\u1f75 \u1fef \u037e \u0387",
    "\u0418\u0306 \u0438\u0306\u043e\u0434 \u0415\u0308\u043b\u043a\u0430 \u0456\u0308\u0436\u0430\u043a \u0443\u0306 \u0433\u0301",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \u110b\u1161\u1102\u1167\u11bc\u1112\u1161\u1109\u1166\u110b\u116d \uac00\u11a8 \u1100\u1100\u1161",
    "\u304b\u3099\u304f\u3099 \u30cf\u309a\u30d2\u3099 \u30a6\u3099 \u3046\u3099 \uff76\uff9e \u304b\u309b",
    "\u0915\u093c\u0916\u093c \u0958\u095f \u0928\u093c \u0930\u093c \u09c7\u09be \u0995\u09c7\u09d7 \u0b92\u0bd7 \u0bc6\u0bbe \u0cc6\u0cd5 \u0d46\u0d3e",
    "\u05e9\u05c1\u05bc \u05e9\u05bc\u05c1 \ufb2a\ufb49 \u05d1\u05bc\u05b0\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea \ufb1d",
    "\u0627\u0653 \u0627\u0654 \u0627\u0655 \u0648\u0654 \u064a\u0654 \u06d5\u0654 \u0644\u064f\u0651 \u0644\u0651\u064f \ufefb",
    "\u0f42\u0fb7 \u0f43 \u0f71\u0f72 \u0f73 \u0f71\u0f80 \u0e19\u0e49\u0e33 \u0e4d\u0e32 \u1025\u102e \u1b05\u1b35",
    "\u212b\u2126\u212a \u2000\u2001 \u2329x\u232a \u0340\u0341\u0343\u0344 \uf900\ufa0e\ufa10\ufa1e \U0002f800\U0002fa1d \u2adc",
    "\U0001d15e\U0001d160 \U000110a5\U000110ba \U00011099\U000110ba \U00011131\U00011127",
    "a\u0315\u0300\u05ae\u0062 a\u0328\u0301 a\u0301\u0328 q\u0307\u0323 s\u0307\u0323 s\u0323\u0307 \u1e9b\u0323 d\u0323\u0307\u0304",
    "\u0301 \u0301x 1\u0301 !\u0338 =\u0338 \u2203\u0338 <\u0338> \n\u0308 \u00a0\u0308 \u200d\u0301 e\u200d\u0301 e\u034f\u0301",
    "I'\u0301m it'\u017f\u0307 's\u0307 don'\u0301t '\u0301s x'S\u0323 we'\u0301ll",
    "cafe\u0301cafe\u0301 caf\u00e9CAFE\u0301 def cafe\u0301(na\u0308me): return e\u0301_1\u0301  # e\u0301\n\te\u0301\r\n",
    "e" + "\u0301" * 40 + "\u0323" * 40, "\u1161\u11a8\u1100 \u1100\u1161\u1161\u11a8", "\ufb01\u2460\u00bd\u2167\uff21\u3392\u01c4\u0132\u0149",
]

# Bytes that are not UTF-8 (lone continuations, cut characters, overlong forms, surrogates, above U+10FFFF) among text.
INVALID = [
    b"\xff", b"\x80", b"\xff\xfe\xfd", b"a\xffb", b"a \xff b", b"caf\xe9 au lait", b"\xe2\x82", b"\xe2\x82\xac\xe2\x82", b"\xe2\x82x",
    b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xf0\x9f\x98 \xf0\x9f\x98\x80", b"12\xff34", b"'\xffs 's\xff", b"\n\xff\n\n",
    b"  \xff  ", b"\xff\xff \xff\n\xff", b"\xc3(\xc3\xa9)", b"\xef\xbf\xbd\xef\xbf", b"<|im_end|>\xff<|im_end|>", b"\xe4\xbd\xa0\xe5\xa5", b"e\xcc\x81\xffe\xcc", b"e\xff\xcc\x81 \xe1\x84\x92\xe1\x85\xa1\xe1\x86", b"abc\x80\x80\x80def",
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
    texts = PROSE + EMOJI + CODE + SPACE + NUMBERS + CONTRACTIONS + RUNS + NOT_COMPOSED
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
