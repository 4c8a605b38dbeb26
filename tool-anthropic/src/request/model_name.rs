//! What is known from the name of a model. Names that are not known are taken for models without limits.

/// The family and the version of a name such as `claude-opus-4-7` or `claude-haiku-4-5-20251001`.
fn parse(name: &str) -> Option<(&str, (u32, u32))> {
    let mut words = name.strip_prefix("claude-")?.split('-');
    let family = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()))?;
    // A date is no version.
    let mut number = || words.next().filter(|word| word.len() <= 2).and_then(|word| word.parse::<u32>().ok());
    Some((family, (number()?, number().unwrap_or(0))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_by_name() {
        let table = [
            ("claude-opus-5-5", true, true),
            ("claude-sonnet-5-5", true, true),
            ("claude-fable-5-1", true, true),
            ("claude-fable-5", false, true),
            ("claude-opus-4-7", false, true),
            ("claude-sonnet-5", false, true),
            ("claude-haiku-4-5", false, false),
            ("claude-haiku-4-5-20251001", false, false),
            ("claude-opus-4-6", false, false),
            ("claude-3-5-haiku-20241022", false, false),
            ("qwen3", false, false),
        ];
        for (name, calls, sampling) in table {
            assert_eq!((refuses_required_calls(name), refuses_sampling(name)), (calls, sampling), "{name}");
        }
    }
}
