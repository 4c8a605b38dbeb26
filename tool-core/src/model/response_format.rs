//! The format of the model's answer.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::schema::strict_form;

/// The name of the tool that takes the answer of models that cannot be constrained to a schema.
pub(crate) const FINAL_TOOL: &str = "final_answer";

/// The format of the model's last message: JSON that matches a schema. Clones share the schema.
///
/// Models that do not [support](crate::ChatModel::supports_response_format) response formats ignore it.
///
/// ```
/// use serde_json::json;
/// use tool_core::model::ChatRequest;
/// use tool_core::provider::ResponseFormat;
/// use tool_core::Message;
///
/// let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
/// let format = ResponseFormat::json_schema("place", schema);
/// assert!(format.is_strict());
/// let request = ChatRequest::new([Message::user("Where is the Eiffel tower?")]).with_response_format(format);
/// assert_eq!(request.response_format().unwrap().name(), "place");
/// ```
#[derive(Clone, PartialEq)]
pub struct ResponseFormat(Arc<Inner>);

/// The strict form is serialized beside the schema, so that the requests of a restored run have the same bytes as those
/// before, and a program that only restores runs does not link the code that derives the strict form.
#[derive(PartialEq, Serialize, Deserialize)]
struct Inner {
    name: String,
    #[serde(rename = "schema")]
    original: Value,
    #[serde(rename = "strict_schema", default, skip_serializing_if = "Option::is_none")]
    strict: Option<Value>,
}

impl ResponseFormat {
    /// Creates a format from a JSON Schema (draft 2020-12) and a name that describes the answer to the model. Providers
    /// accept names of at most 64 letters, digits, `_` and `-`.
    ///
    /// The format is [strict](Self::is_strict) if the schema has a strict form, see
    /// [`ToolDefinition::into_strict`](crate::model::ToolDefinition::into_strict).
    #[must_use]
    pub fn json_schema(name: impl Into<String>, schema: Value) -> Self {
        let strict = strict_form(&schema).ok();
        Self(Arc::new(Inner { name: name.into(), original: schema, strict }))
    }

    /// Returns this format with the original schema, which the provider then treats as a hint. Use it for a schema whose
    /// strict form loses too much.
    #[must_use]
    pub fn without_strict(self) -> Self {
        if !self.is_strict() {
            return self;
        }
        Self(Arc::new(Inner { name: self.0.name.clone(), original: self.0.original.clone(), strict: None }))
    }

    /// Returns the name, which describes the answer to the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the schema that is sent to the provider: the strict form if the format [is strict](Self::is_strict), in
    /// which optional members are required but can be `null`.
    #[must_use]
    pub fn schema(&self) -> &Value {
        self.0.strict.as_ref().unwrap_or(&self.0.original)
    }

    /// Returns the schema as passed to [`json_schema`](Self::json_schema), which defines the meaning of an answer in
    /// either form.
    #[must_use]
    pub fn original_schema(&self) -> &Value {
        &self.0.original
    }

    /// Returns `true` if the provider must constrain the model's output to the schema.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.0.strict.is_some()
    }
}

/// Omits the schema, which can be long.
impl fmt::Debug for ResponseFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFormat")
            .field("name", &self.0.name)
            .field("is_strict", &self.is_strict())
            .finish_non_exhaustive()
    }
}

impl Serialize for ResponseFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ResponseFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Arc::new(Inner::deserialize(deserializer)?)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stay() -> Value {
        json!({ "type": "object", "properties": { "nights": { "type": "integer", "minimum": 1 } } })
    }

    #[test]
    fn is_strict_if_the_schema_has_a_strict_form() {
        let strict = ResponseFormat::json_schema("stay", stay());
        assert!(strict.is_strict());
        assert_eq!(strict.schema()["required"], json!(["nights"]));
        assert_eq!(strict.schema()["additionalProperties"], false);
        assert_eq!(*strict.original_schema(), stay());

        let lenient = strict.clone().without_strict();
        assert!(!lenient.is_strict() && lenient != strict);
        assert_eq!(*lenient.schema(), stay());

        for open in [json!({ "type": "object", "additionalProperties": true }), json!(true), json!(1)] {
            let format = ResponseFormat::json_schema("any", open.clone());
            assert_eq!((format.is_strict(), format.schema()), (false, &open));
        }
    }

    #[test]
    fn serializes_and_deserializes() {
        let strict = ResponseFormat::json_schema("stay", stay());
        let form = strict.schema().clone();
        let table = [
            (strict.clone(), json!({ "name": "stay", "schema": stay(), "strict_schema": form })),
            (strict.without_strict(), json!({ "name": "stay", "schema": stay() })),
        ];
        for (format, state) in table {
            assert_eq!(serde_json::to_value(&format).unwrap(), state);
            assert_eq!(serde_json::from_value::<ResponseFormat>(state).unwrap(), format);
        }
    }

    #[test]
    fn debug_shows_the_name() {
        let format = ResponseFormat::json_schema("stay", stay());
        assert_eq!(format!("{format:?}"), r#"ResponseFormat { name: "stay", is_strict: true, .. }"#);
    }
}
