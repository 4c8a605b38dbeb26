//! What is known from the name of a model. Names that are not known are taken for models without limits.

/// The family and the version of a name such as `claude-opus-4-7`, `claude-haiku-4-5-20251001` or `claude-3-7-sonnet-20250219`.
fn parse(name: &str) -> Option<(&str, (u32, u32))> {
    let words = name.strip_prefix("claude-")?.split('-');
    let family = words.clone().find(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()))?;
    // A date is no version.
    let mut numbers = words
        .filter(|word| *word != family)
        .map_while(|word| Some(word).filter(|word| word.len() <= 2)?.parse::<u32>().ok());
    Some((family, (numbers.next()?, numbers.next().unwrap_or(0))))
}

/// Returns `true` for models that reject a required call: Opus, Sonnet and Haiku from 5.5, and Fable and Mythos from 5.1.
pub(super) fn refuses_required_calls(name: &str) -> bool {
    match parse(name) {
        Some(("fable" | "mythos", version)) => version >= (5, 1),
        Some((_, version)) => version >= (5, 5),
        None => false,
    }
}

/// Returns `true` for models that reject `temperature` and `top_p`: Opus from 4.7, Sonnet and Haiku from 5, and Fable and Mythos.
pub(super) fn refuses_sampling(name: &str) -> bool {
    match parse(name) {
        Some(("fable" | "mythos", _)) => true,
        Some(("opus", version)) => version >= (4, 7),
        Some((_, version)) => version >= (5, 0),
        None => false,
    }
}

/// Returns `true` for models that reject a reply at the end of the messages: all from 4.6.
pub(super) fn refuses_prefill(name: &str) -> bool {
    parse(name).is_some_and(|(_, version)| version >= (4, 6))
}

/// Returns `true` for models that do not summarize conversations: Haiku, and Opus and Sonnet before 4.6.
/// See <https://platform.claude.com/docs/en/build-with-claude/compaction-on-demand>.
pub(crate) fn lacks_compaction(name: &str) -> bool {
    parse(name).is_some_and(|(family, version)| family == "haiku" || version < (4, 6))
}

/// Returns `true` for models whose provider leaves out the thinking before the last message of the user: Haiku, Opus before 4.5 and Sonnet
/// before 4.6. See <https://platform.claude.com/docs/en/build-with-claude/context-windows>.
pub(crate) fn forgets_thinking(name: &str) -> bool {
    match parse(name) {
        Some(("haiku", _)) => true,
        Some(("opus", version)) => version < (4, 5),
        Some(("sonnet", version)) => version < (4, 6),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_models_keep_their_thinking() {
        let keeping = ["claude-opus-4-5", "claude-sonnet-4-6", "claude-sonnet-5", "claude-fable-5", "qwen3"];
        let forgetting =
            ["claude-opus-4-1", "claude-3-7-sonnet-latest", "claude-haiku-4-5", "claude-haiku-5-5"];
        assert_eq!(keeping.map(forgets_thinking), [false; 5]);
        assert_eq!(forgetting.map(forgets_thinking), [true; 4]);
    }

    #[test]
    fn newer_models_summarize() {
        for name in [
            "claude-opus-5-5",
            "claude-opus-4-6",
            "claude-sonnet-5",
            "claude-fable-5-1",
            "claude-mythos-preview",
        ] {
            assert!(!lacks_compaction(name), "{name}");
        }
        for name in [
            "claude-haiku-4-5",
            "claude-haiku-5-5",
            "claude-opus-4-5",
            "claude-sonnet-4-5-20250929",
            "claude-3-7-sonnet-20250219",
            "claude-3-5-sonnet-latest",
            "claude-3-opus-20240229",
        ] {
            assert!(lacks_compaction(name), "{name}");
        }
    }

    #[test]
    fn models_are_known_by_name() {
        let table = [
            ("claude-opus-5-5", true, true, true),
            ("claude-sonnet-5-5", true, true, true),
            ("claude-fable-5-1", true, true, true),
            ("claude-fable-5", false, true, true),
            ("claude-opus-4-7", false, true, true),
            ("claude-sonnet-5", false, true, true),
            ("claude-haiku-4-5", false, false, false),
            ("claude-haiku-4-5-20251001", false, false, false),
            ("claude-opus-4-6", false, false, true),
            ("claude-3-5-haiku-20241022", false, false, false),
            ("qwen3", false, false, false),
        ];
        for (name, calls, sampling, prefill) in table {
            let found = (refuses_required_calls(name), refuses_sampling(name), refuses_prefill(name));
            assert_eq!(found, (calls, sampling, prefill), "{name}");
        }
    }
}
