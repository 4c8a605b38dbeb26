//! Guesses from the names of models, which the API does not describe.

/// Returns `true` if the name belongs to a reasoning model: `o1`, `gpt-5` and their successors, except those for chat only.
pub(super) fn is_reasoning_model(model: &str) -> bool {
    let name = base_name(model);
    let is_gpt = || gpt_version(name).is_some_and(|version| version >= (5, 0)) && !name.contains("-chat");
    is_o_model(name) || name.starts_with("codex-") || is_gpt()
}

/// Returns `false` if the name belongs to a model older than `gpt-5.4`, the first that
/// [searches for tools](https://developers.openai.com/api/docs/guides/tools-tool-search). Other names, such as the names of
/// deployments, say nothing.
pub(super) fn can_search_tools(model: &str) -> bool {
    let name = base_name(model);
    let is_old_gpt = gpt_version(name).is_some_and(|version| version < (5, 4));
    !is_o_model(name) && !name.starts_with("codex-") && !is_old_gpt
}

/// Returns the name without the vendor and the prefix of a model that was trained further.
fn base_name(model: &str) -> &str {
    let name = model.rsplit('/').next().unwrap_or(model);
    name.strip_prefix("ft:").unwrap_or(name)
}

fn is_o_model(name: &str) -> bool {
    name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// Returns the version in a name such as `gpt-5.4-mini`.
fn gpt_version(name: &str) -> Option<(u32, u32)> {
    let rest = name.strip_prefix("gpt-")?;
    let (major, rest) = split_number(rest)?;
    let minor = rest.strip_prefix('.').and_then(split_number);
    Some((major, minor.map_or(0, |(minor, _)| minor)))
}

fn split_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_models_do_not_search_tools() {
        let old = [
            "gpt-4",
            "gpt-4o-mini",
            "gpt-4.1",
            "gpt-5",
            "gpt-5-mini",
            "gpt-5.3-codex",
            "o1",
            "o4-mini",
            "openai/gpt-5.1",
            "ft:gpt-4.1-mini:acme",
            "codex-mini-latest",
        ];
        let others = [
            "gpt-5.4",
            "gpt-5.4-mini",
            "gpt-5.10",
            "gpt-6",
            "openai/gpt-5.5",
            "ft:gpt-5.4:acme",
            "gpt-oss-120b",
            "omni",
            "our-deployment",
            "",
        ];
        assert_eq!(old.into_iter().find(|name| can_search_tools(name)), None);
        assert_eq!(others.into_iter().find(|name| !can_search_tools(name)), None);
    }
}
