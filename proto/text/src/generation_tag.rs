//! `{% generation %} ... {% endgeneration %}`: in training they mark what the assistant wrote; in rendering they are a
//! scope. MiniJinja has no tags of one's own, so they become `{% with %}`, with the same whitespace control.

/// A template with the tags replaced; everything else stays as it is, byte by byte.
pub fn replace(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = match rest.as_bytes().get(1) {
            Some(b'#') => rest.find("#}").map(|end| end + 2),
            Some(b'{') => expression_length(rest, "}}"),
            Some(b'%') => match raw_length(rest) {
                Some(length) => Some(length),
                None => expression_length(rest, "%}"),
            },
            _ => Some(1),
        };
        let tag = &rest[..length.unwrap_or(rest.len())];
        match replacement(tag) {
            Some(replacement) => out.push_str(&replacement),
            None => out.push_str(tag),
        }
        rest = &rest[tag.len()..];
    }
    out.push_str(rest);
    out
}

/// From an opening delimiter to behind the closing one, which does not count inside a string.
fn expression_length(text: &str, close: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut quote = None;
    let mut at = 2;
    while at < bytes.len() {
        match quote {
            Some(_) if bytes[at] == b'\\' => at += 1,
            Some(mark) if bytes[at] == mark => quote = None,
            Some(_) => {}
            None if bytes[at] == b'"' || bytes[at] == b'\'' => quote = Some(bytes[at]),
            None if bytes[at..].starts_with(close.as_bytes()) => return Some(at + close.len()),
            None => {}
        }
        at += 1;
    }
    None
}

/// The name of a block tag without its delimiters and whitespace control.
fn tag_name(tag: &str) -> Option<(&str, &str, &str)> {
    let inner = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    let start = if inner.starts_with(['-', '+']) { 1 } else { 0 };
    let end = if inner.len() > start && inner.ends_with(['-', '+']) { inner.len() - 1 } else { inner.len() };
    Some((&inner[..start], inner[start..end].trim(), &inner[end..]))
}

/// `{% raw %}` to behind `{% endraw %}`, where nothing is a tag.
fn raw_length(text: &str) -> Option<usize> {
    let open = text.find("%}")? + 2;
    if tag_name(&text[..open])?.1 != "raw" {
        return None;
    }
    let mut at = open;
    while let Some(start) = text[at..].find("{%") {
        at += start;
        let end = at + text[at..].find("%}")? + 2;
        if tag_name(&text[at..end])?.1 == "endraw" {
            return Some(end);
        }
        at += 2;
    }
    None
}

fn replacement(tag: &str) -> Option<String> {
    let (before, name, after) = tag_name(tag)?;
    let name = match name {
        "generation" => "with",
        "endgeneration" => "endwith",
        _ => return None,
    };
    Some(format!("{{%{before} {name} {after}%}}"))
}

#[cfg(test)]
mod tests {
    use super::replace;

    #[test]
    fn tags_become_a_scope_with_the_same_whitespace_control() {
        assert_eq!(
            replace("a{%- generation -%}b{% endgeneration %}c{%generation+%}"),
            "a{%- with -%}b{% endwith %}c{% with +%}"
        );
    }

    #[test]
    fn what_only_looks_like_a_tag_stays() {
        for same in [
            "{{ '{% generation %}' }}",
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% set generation = \"%}{% generation %}\" %}",
            "{{ \"\\\"{% generation %}\" }}",
            "{ % generation % }",
            "{% generation",
            "{%",
            "{",
            "{{ 'é",
            "{%-%}",
        ] {
            assert_eq!(replace(same), same);
        }
    }
}
