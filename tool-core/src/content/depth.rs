//! How deep data from untrusted parties may be nested.

/// The maximum number of nested objects and lists in a JSON value that is read.
///
/// It protects the stack: serde_json, which reads values recursively, refuses deeper ones.
pub const MAX_JSON_DEPTH: usize = 127;

/// The maximum number of nested levels of a JSON Schema that is read. Other parties can write schemas.
///
/// It protects the stack of the code that walks through schemas, and is lower than [`MAX_JSON_DEPTH`], because a schema arrives
/// inside another message.
pub const MAX_SCHEMA_DEPTH: usize = 100;
