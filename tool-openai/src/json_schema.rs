//! The JSON schema of a response format.

use serde::Serialize;
use serde_json::Value;
use tool_core::provider::ResponseFormat;

use crate::endpoint::Endpoint;

/// The fields that both APIs have for a schema.
#[derive(Serialize)]
pub(crate) struct JsonSchema<'a> {
    name: &'a str,
    schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

impl<'a> JsonSchema<'a> {
    /// Returns the schema for an endpoint, or `None` if that supports none.
    pub(crate) fn new(format: Option<&'a ResponseFormat>, endpoint: &Endpoint) -> Option<Self> {
        let format = format.filter(|_| endpoint.supports_json_schema)?;
        // The strict form is less specific, and an endpoint without `strict` may well enforce the whole schema.
        let (schema, strict) = if endpoint.supports_strict {
            (format.schema(), Some(format.is_strict()))
        } else {
            (format.original_schema(), None)
        };
        Some(Self { name: format.name(), schema, strict })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_strict_if_possible() {
        let closed =
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let open = json!({ "type": "object", "additionalProperties": true });
        let limited =
            json!({ "type": "object", "properties": { "name": { "type": "string", "maxLength": 9 } } });
        let table = [
            (&closed, Endpoint::openai(), Some(true)),
            (&open, Endpoint::openai(), Some(false)),
            (&limited, Endpoint::llama_cpp(), None),
        ];
        for (schema, endpoint, strict) in table {
            let format = ResponseFormat::json_schema("place", schema.clone());
            let mut expected = json!({ "name": "place", "schema": schema });
            if let Some(strict) = strict {
                expected["strict"] = strict.into();
            }
            assert_eq!(json!(JsonSchema::new(Some(&format), &endpoint)), expected);
            assert!(JsonSchema::new(Some(&format), &Endpoint::deepseek()).is_none());
        }
    }
}
