//! The names that the macros know: attributes, their options, and types.

pub(crate) const NAME: &str = "name";
pub(crate) const DESCRIPTION: &str = "description";
pub(crate) const CRATE: &str = "crate";
pub(crate) const RETURN_DIRECT: &str = "return_direct";
pub(crate) const BLOCKING: &str = "blocking";
pub(crate) const STRICT: &str = "strict";
pub(crate) const DEFERRED: &str = "deferred";
pub(crate) const TIMEOUT: &str = "timeout";
pub(crate) const NEEDS_APPROVAL: &str = "needs_approval";
pub(crate) const EXCLUSIVE: &str = "exclusive";
pub(crate) const AT_MOST_ONCE: &str = "at_most_once";
pub(crate) const PURE: &str = "pure";
pub(crate) const KEEP_OUTPUT: &str = "keep_output";
pub(crate) const ATTEMPTS: &str = "attempts";
pub(crate) const UNDO: &str = "undo";
pub(crate) const CONVERT: &str = "convert";
pub(crate) const MAX_OUTPUT_CHARS: &str = "max_output_chars";

pub(crate) const REQUIRED: &str = "required";
pub(crate) const DEFAULT: &str = "default";
pub(crate) const RANGE: &str = "range";
pub(crate) const LENGTH: &str = "length";
pub(crate) const PATTERN: &str = "pattern";
pub(crate) const EXAMPLE: &str = "example";

/// The options of `#[tool("…", …)]`.
pub(crate) const TOOL_OPTIONS: &[&str] = &[
    NAME,
    DESCRIPTION,
    RETURN_DIRECT,
    BLOCKING,
    STRICT,
    TIMEOUT,
    NEEDS_APPROVAL,
    EXCLUSIVE,
    AT_MOST_ONCE,
    PURE,
    KEEP_OUTPUT,
    ATTEMPTS,
    UNDO,
    CONVERT,
    MAX_OUTPUT_CHARS,
    DEFERRED,
    CRATE,
];

pub(crate) const IF_ALL: &str = "if_all";
pub(crate) const IF_LAST: &str = "if_last";
pub(crate) const ALWAYS: &str = "always";

/// The values of `return_direct = …`. The first is the default of a bare `return_direct`.
pub(crate) const RETURN_DIRECT_VALUES: &[&str] = &[IF_ALL, IF_LAST, ALWAYS];

/// The options of `#[param("…", …)]`.
pub(crate) const PARAM_OPTIONS: &[&str] =
    &[NAME, DESCRIPTION, REQUIRED, DEFAULT, RANGE, LENGTH, PATTERN, EXAMPLE];

/// The options of `#[toolbox(…)]`.
pub(crate) const TOOLBOX_OPTIONS: &[&str] = &[CRATE];

pub(crate) const FILE: &str = "file";
pub(crate) const TEMPERATURE: &str = "temperature";
pub(crate) const TOP_P: &str = "top_p";
pub(crate) const MAX_OUTPUT_TOKENS: &str = "max_output_tokens";
pub(crate) const SEED: &str = "seed";
pub(crate) const REASONING_EFFORT: &str = "reasoning_effort";
pub(crate) const MODEL: &str = "model";
pub(crate) const MAX_TURNS: &str = "max_turns";
pub(crate) const TOOLS: &str = "tools";
pub(crate) const ONLY_TOOLS: &str = "only_tools";
pub(crate) const RESPONSE: &str = "response";

pub(crate) const AGENT: &str = "agent";

/// The options of `#[assistant("…", …)]`.
pub(crate) const ASSISTANT_OPTIONS: &[&str] = &[AGENT, FILE, CRATE];

/// The options of `#[ask("…", …)]`.
pub(crate) const ASK_OPTIONS: &[&str] = &[
    FILE,
    TEMPERATURE,
    TOP_P,
    MAX_OUTPUT_TOKENS,
    SEED,
    REASONING_EFFORT,
    MODEL,
    MAX_TURNS,
    TOOLS,
    ONLY_TOOLS,
    RESPONSE,
];

/// The values of `response = "…"`.
pub(crate) const RESPONSE_VALUES: &[&str] = &["tool"];

/// The attribute on a function.
pub(crate) const TOOL: &str = "tool";

/// The attribute on a parameter that the model fills.
pub(crate) const PARAM: &str = "param";

/// The attribute on a parameter that the application fills.
pub(crate) const INJECT: &str = "inject";

/// The attribute on an `impl` block.
pub(crate) const TOOLBOX: &str = "toolbox";

/// The attribute on a trait.
pub(crate) const ASSISTANT: &str = "assistant";

/// The attribute on a method that a model answers.
pub(crate) const ASK: &str = "ask";

/// The attribute on the parameter that is the id of the conversation.
pub(crate) const CONVERSATION: &str = "conversation";

/// The attributes that are part of the macros.
pub(crate) const ATTRIBUTES: &[&str] = &[TOOL, PARAM, INJECT, ASK, CONVERSATION];

/// Types that can only be injected. `Progress` is not one of them, because a type of the application can have this name.
pub(crate) const CONTEXT_TYPES: &[&str] = &[
    "Asker",
    "CancellationToken",
    "ConversationId",
    "IdempotencyKey",
    "ToolCall",
    "ToolContext",
    "CallToUndo",
];

/// Types that say nothing about their purpose, besides primitive ones: an injected value is found by its type.
pub(crate) const PLAIN_TYPES: &[&str] = &["Duration", "PathBuf", "String", "SystemTime"];

/// Types that say nothing about their purpose if their arguments do not.
pub(crate) const PLAIN_CONTAINERS: &[&str] =
    &["Arc", "BTreeMap", "BTreeSet", "Box", "Cow", "HashMap", "HashSet", "Option", "Vec", "VecDeque"];

/// The path of `tool-core` in generated code, unless `crate = "…"` is given.
pub(crate) const DEFAULT_CRATE: &str = "::tool_core";

/// Primitive types, which the type of a tool with such a name would shadow.
pub(crate) const PRIMITIVE_TYPES: &[&str] = &[
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8", "u16", "u32",
    "u64", "u128", "usize",
];

/// The largest value of `attempts`.
pub(crate) const MAX_ATTEMPTS: u32 = 100;

/// The maximum length of a tool's name: <https://platform.openai.com/docs/api-reference/chat/create>.
pub(crate) const MAX_TOOL_NAME_LEN: usize = 64;
