//! The form of a schema that OpenAI's strict mode enforces: a subset of JSON Schema in which every object is closed, every
//! property is required, and optional properties are nullable instead.
//!
//! Constraints that strict mode does not support are moved to descriptions for the model where possible. All others are an
//! error with the path. The schema may be untrusted: references are never expanded, and all work is bounded.

mod limits;
mod node;
mod description;
mod types;
mod definitions;
mod writer;

use std::fmt;

use serde_json::Value;

use self::writer::Writer;

/// A part of a schema that strict mode does not support.
#[derive(Debug, PartialEq)]
pub(crate) struct Unsupported {
    pub(crate) path: String,
    pub(crate) reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.path, self.reason)
    }
}

/// Returns the strict form of a tool's parameters.
/// Fails if strict mode does not support the schema, or if it is too large.
pub(crate) fn strict_form(schema: &Value) -> Result<Value, Unsupported> {
    let mut writer = Writer::new(schema);
    writer.write_arguments().map_err(|reason| Unsupported { path: writer.path, reason })
}

#[cfg(test)]
mod tests;
