//! The items that generated code names. Not part of the public API: they change without notice.

mod text;
mod patterns;

pub use inventory;
pub use tool_macros::{expand_call, expand_tools};

pub use self::patterns::{call_pattern, list, name_of, refuse_kind, refuse_missing, refuse_unknown, text};
use self::text::{Text, is_equal};
pub use crate::agent::Agent;
pub use crate::agent::assistant::*;
pub use crate::arguments::private::*;
pub use crate::model::{ModelOptions, ReturnDirect};
pub use crate::tool::context::{Injectable, Injection};
pub use crate::tool::private::*;
pub use crate::toolset::ToolSet;
pub use crate::toolset::private::*;

/// Builds the set that `tools![..]` evaluates to.
#[must_use]
pub fn tool_set(list: &[Listed]) -> ToolSet {
    ToolSet::from_declared(list.iter().map(|listed| (listed.tool)()))
}

/// Checks at compile time that no earlier tool of a `tools!` list has the name of the tool at `index`.
///
/// # Panics
///
/// Panics if there is one. The message names both locations.
pub const fn refuse_duplicate(list: &[Listed], index: usize) {
    let ToolName { name, declared_at: second } = list[index].name;
    let mut earlier = 0;
    while earlier < index {
        let ToolName { name: other, declared_at: first } = list[earlier].name;
        if is_equal(name, other) {
            let mut text = Text::EMPTY;
            text.push("two tools are named `");
            text.push(name);
            text.push("`: one at ");
            text.push_location(first);
            text.push(", one at ");
            text.push_location(second);
            text.push("; rename one with `#[tool(name = \"…\")]`, or remove it");
            panic!("{}", text.as_str());
        }
        earlier += 1;
    }
}

/// Returns the name of a tool that is a constant, after it is checked at compile time.
///
/// # Panics
///
/// Panics if the providers do not accept the name.
#[must_use]
pub const fn checked_name(name: &'static str) -> &'static str {
    if !crate::toolset::is_valid_name(name) {
        let mut text = Text::EMPTY;
        text.push("`");
        text.push(name);
        text.push("` cannot be the name of a tool; use 1 to 64 ASCII letters, digits, `_` and `-`");
        panic!("{}", text.as_str());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed<const N: usize>(names: [&'static str; N]) -> [Listed; N] {
        names.map(|name| Listed { name: ToolName::new(name), tool: || unreachable!() })
    }

    #[test]
    fn accepts_distinct_names() {
        let list = listed(["sum", "sums", "mus"]);
        for index in 0..list.len() {
            refuse_duplicate(&list, index);
        }
    }

    #[test]
    fn names_both_locations_of_a_duplicate() {
        let list = listed(["sum", "root", "sum"]);
        let panic = std::panic::catch_unwind(|| refuse_duplicate(&list, 2)).unwrap_err();
        let line = list[0].name.declared_at.line();
        let locations = format!("one at {}:{line}, one at {}:{line};", file!(), file!());
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.starts_with(&format!("two tools are named `sum`: {locations}")), "{text}");
    }
}
