//! Every word of the attributes, once.

pub(crate) const NAME: &str = "name";
pub(crate) const CRATE: &str = "crate";
pub(crate) const REQUIRED: &str = "required";

/// The words of `#[tool("…", …)]`.
pub(crate) const TOOL_WORDS: &[&str] = &[NAME, CRATE];

/// The words of `#[param("…", …)]`.
pub(crate) const PARAM_WORDS: &[&str] = &[NAME, REQUIRED];

/// The attribute on a function.
pub(crate) const TOOL: &str = "tool";

/// The attribute on a parameter.
pub(crate) const PARAM: &str = "param";

/// Where generated code finds what it needs, unless `crate = "…"` says otherwise.
pub(crate) const DEFAULT_CRATE: &str = "::tool_core";

/// Types that a tool's own type would shadow.
pub(crate) const PRIMITIVE_TYPES: &[&str] = &[
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8", "u16", "u32",
    "u64", "u128", "usize",
];

/// How long a tool's name may be: <https://platform.openai.com/docs/api-reference/chat/create>.
pub(crate) const LONGEST_TOOL_NAME: usize = 64;
