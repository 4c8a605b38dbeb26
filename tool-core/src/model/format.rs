//! What the model's last message must look like.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::schema::strict_form;

/// What the model's last message must look like: a JSON text of a schema. Cloning shares it.
///
/// Only a model that [supports it](crate::ChatModel::supports_response_format) is held to it; any other ignores it.
///
/// ```
/// use serde_json::json;
/// use tool_core::{ResponseFormat, ChatRequest, Message};
///
/// let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
/// let format = ResponseFormat::json_schema("place", schema);
/// assert!(format.is_strict());
/// let request = ChatRequest::new([Message::user("Where is the Eiffel tower?")]).with_response_format(format);
/// assert_eq!(request.response_format().unwrap().name(), "place");
/// ```
#[derive(Clone, PartialEq)]
pub struct ResponseFormat(Arc<Inner>);

/// The strict form is kept beside the schema, so that a request of a run that is restored has the bytes of those before,
/// and a program that only restores runs is not linked with what makes the form.
#[derive(PartialEq, Serialize, Deserialize)]
struct Inner {
    name: String,
    #[serde(rename = "schema")]
    given: Value,
    #[serde(rename = "strict_schema", default, skip_serializing_if = "Option::is_none")]
    strict: Option<Value>,
}

impl ResponseFormat {
    /// JSON of a schema (draft 2020-12), under a name that tells the model what it is: letters, digits, `_` and `-`,
    /// at most 64 of them, is what providers take.
    ///
    /// It is [strict](Self::is_strict) if the schema has a strict form, as in
    /// [`ToolDefinition::into_strict`](crate::ToolDefinition::into_strict).
    #[must_use]
    pub fn json_schema(name: impl Into<String>, schema: Value) -> Self {
        let strict = strict_form(&schema).ok();
        Self(Arc::new(Inner { name: name.into(), given: schema, strict }))
    }

    /// The same format with the schema as it was given, which the provider then takes as a wish: for a schema of which
    /// the strict form says too little.
    #[must_use]
    pub fn without_strict(self) -> Self {
        if !self.is_strict() {
            return self;
        }
        Self(Arc::new(Inner { name: self.0.name.clone(), given: self.0.given.clone(), strict: None }))
    }

    /// The name that tells the model what it is.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The schema that the provider is sent: in strict form if the format [is strict](Self::is_strict). There, `null`
    /// stands for what may be left out.
    #[must_use]
    pub fn schema(&self) -> &Value {
        self.0.strict.as_ref().unwrap_or(&self.0.given)
    }

    /// The schema as it was given: what an answer means, whether the model was held to it or to its strict form.
    #[must_use]
    pub fn given_schema(&self) -> &Value {
        &self.0.given
    }

    /// The provider is asked to hold the model to the schema, letter by letter.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.0.strict.is_some()
    }
}

/// Names it; the schema may be long.
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
    fn strict_where_the_schema_can_be() {
        let strict = ResponseFormat::json_schema("stay", stay());
        assert!(strict.is_strict());
        assert_eq!(strict.schema()["required"], json!(["nights"]));
        assert_eq!(strict.schema()["additionalProperties"], false);
        assert_eq!(*strict.given_schema(), stay());

        let lenient = strict.clone().without_strict();
        assert!(!lenient.is_strict() && lenient != strict);
        assert_eq!(*lenient.schema(), stay());

        for open in [json!({ "type": "object", "additionalProperties": true }), json!(true), json!(1)] {
            let format = ResponseFormat::json_schema("any", open.clone());
            assert_eq!((format.is_strict(), format.schema()), (false, &open));
        }
    }

    #[test]
    fn a_strict_form_is_strict_as_it_is() {
        let once = ResponseFormat::json_schema("stay", stay());
        let twice = ResponseFormat::json_schema("stay", once.schema().clone());
        assert_eq!((twice.is_strict(), twice.schema()), (true, once.schema()));
    }

    #[test]
    fn states() {
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
    fn debug_names_it() {
        let format = ResponseFormat::json_schema("stay", stay());
        assert_eq!(format!("{format:?}"), r#"ResponseFormat { name: "stay", is_strict: true, .. }"#);
    }
}
