//! Descriptions of schemas.

use serde_json::Value;

/// Describes a schema: `an integer from 0 to 255`, `one of "a", "b"`, `a list`.
pub(crate) fn describe_schema(schema: &Value) -> String {
    if let Some(variants) = schema["enum"].as_array() {
        let variants: Vec<_> = variants.iter().map(Value::to_string).collect();
        return format!("one of {}", variants.join(", "));
    }
    if let Some(variant) = schema.get("const") {
        return variant.to_string();
    }
    // A variant with data.
    if let (Some([name]), Some(_)) = (
        schema["required"].as_array().map(Vec::as_slice),
        schema["additionalProperties"].as_bool().filter(|may| !may),
    ) {
        return format!("an object with {name}");
    }
    if let Some(choices) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
        return choices.iter().map(describe_schema).collect::<Vec<_>>().join(" or ");
    }
    match &schema["type"] {
        Value::Array(types) => {
            let mut single = schema.clone();
            let descriptions = types.iter().map(|one| {
                single["type"] = one.clone();
                describe_schema(&single)
            });
            descriptions.collect::<Vec<_>>().join(" or ")
        }
        Value::String(name) => match &**name {
            "integer" => format!("an integer{}", describe_range(schema)),
            "number" => format!("a number{}", describe_range(schema)),
            "string" => format!("a string{}", describe_text(schema)),
            "boolean" => "true or false".into(),
            "array" => {
                format!("a list{}", describe_lengths(&schema["minItems"], &schema["maxItems"], "items"))
            }
            "object" => {
                format!(
                    "an object{}",
                    describe_lengths(&schema["minProperties"], &schema["maxProperties"], "entries")
                )
            }
            "null" => "null".into(),
            name => format!("a {name}"),
        },
        _ => "a value".into(),
    }
}

/// Describes the bounds of a number, such as ` from 1 to 100`.
fn describe_range(schema: &Value) -> String {
    let mut range = match (&schema["minimum"], &schema["maximum"]) {
        (Value::Null, Value::Null) => String::new(),
        (lowest, Value::Null) => format!(" from {lowest}"),
        (Value::Null, highest) => format!(" up to {highest}"),
        (lowest, highest) => format!(" from {lowest} to {highest}"),
    };
    if let Some(bound) = schema.get("exclusiveMaximum") {
        range = format!("{range} below {bound}");
    }
    range
}

/// Describes the limits of a string, such as ` of 1 to 64 characters that matches …`.
fn describe_text(schema: &Value) -> String {
    let mut text = describe_lengths(&schema["minLength"], &schema["maxLength"], "characters");
    if let Some(pattern) = schema["pattern"].as_str() {
        text = format!("{text} that matches `{pattern}`");
    }
    text
}

/// Describes a length, such as ` of 1 to 64 characters`.
fn describe_lengths(shortest: &Value, longest: &Value, units: &str) -> String {
    match (shortest, longest) {
        (Value::Null, Value::Null) => String::new(),
        (shortest, Value::Null) => format!(" of at least {shortest} {units}"),
        (Value::Null, longest) => format!(" of at most {longest} {units}"),
        (shortest, longest) if shortest == longest => format!(" of {shortest} {units}"),
        (shortest, longest) => format!(" of {shortest} to {longest} {units}"),
    }
}
