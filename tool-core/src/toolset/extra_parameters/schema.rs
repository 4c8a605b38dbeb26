//! The schema of a tool with more parameters.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// Where the named schemas of a schema stand.
const DEFINITIONS: &str = "#/$defs/";

/// The parameters that are added to those of a tool: the fields of a struct.
#[derive(Clone)]
pub(super) struct Extra {
    pub(super) properties: Map<String, Value>,
    pub(super) required: Vec<String>,
    /// What the properties refer to.
    definitions: Map<String, Value>,
}

impl Extra {
    /// The fields of a struct, out of its schema and what that refers to; `None` if it has none.
    pub(super) fn of(mut schema: Value, definitions: Map<String, Value>) -> Option<Self> {
        // A type that holds itself is a reference.
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            schema = definitions.get(name.strip_prefix(DEFINITIONS)?)?.clone();
        }
        let properties = match schema.get_mut("properties").map(Value::take) {
            Some(Value::Object(properties)) if !properties.is_empty() => properties,
            _ => return None,
        };
        let required = schema["required"].as_array().into_iter().flatten();
        let required = required.filter_map(Value::as_str).map(str::to_owned).collect();
        Some(Self { properties, required, definitions })
    }

    /// The schema of one property, to stand alone.
    pub(super) fn property(&self, name: &str) -> Option<Value> {
        let mut schema = self.properties.get(name)?.clone();
        if let (Some(schema), false) = (schema.as_object_mut(), self.definitions.is_empty()) {
            schema.insert("$defs".into(), Value::Object(self.definitions.clone()));
        }
        Some(schema)
    }

    /// The parameters of a tool, and these behind them.
    ///
    /// # Errors
    ///
    /// Why they cannot be added: the end of a sentence about the tool.
    pub(super) fn added_to(&self, parameters: &Value) -> Result<Value, String> {
        let no_object = || "has a schema that is not one of an object, so nothing can be added".to_owned();
        let mut object = parameters.as_object().ok_or_else(no_object)?.clone();
        if let Some(name) = self.properties.keys().find(|name| has_property(&object, name)) {
            return Err(format!(
                "has a parameter `{name}` already; give the field another name, as with `#[serde(rename = \"…\")]`"
            ));
        }
        let mut definitions = match object.get("$defs") {
            Some(Value::Object(definitions)) => definitions.clone(),
            _ => Map::new(),
        };
        let ours = self.beside(&definitions);
        let properties = object.entry("properties").or_insert_with(|| json!({}));
        properties.as_object_mut().ok_or_else(no_object)?.extend(ours.properties.clone());
        if !ours.required.is_empty() {
            let required = object.entry("required").or_insert_with(|| json!([]));
            required
                .as_array_mut()
                .ok_or_else(no_object)?
                .extend(ours.required.iter().map(|name| name.as_str().into()));
        }
        if !ours.definitions.is_empty() {
            definitions.extend(ours.definitions.clone());
            object.insert("$defs".into(), Value::Object(definitions));
        }
        Ok(Value::Object(object))
    }

    /// The same parameters with names for what they refer to that mean nothing else in the tool's schema.
    fn beside(&self, theirs: &Map<String, Value>) -> Cow<'_, Self> {
        let shared = || self.definitions.iter().filter(|(name, _)| theirs.contains_key(*name));
        // Only if all are the same, each is: what they refer to are others of them.
        if shared().all(|(name, schema)| theirs.get(name) == Some(schema)) {
            return Cow::Borrowed(self);
        }
        let is_taken = |name: &str| theirs.contains_key(name) || self.definitions.contains_key(name);
        let new_names: Map<_, Value> = shared()
            .map(|(name, _)| {
                let mut new_name = format!("{name}_");
                while is_taken(&new_name) {
                    new_name.push('_');
                }
                (name.clone(), new_name.into())
            })
            .collect();
        let mut renamed = Self {
            properties: self.properties.clone(),
            required: self.required.clone(),
            definitions: Map::new(),
        };
        renamed.properties.values_mut().for_each(|schema| refer_to(&new_names, schema));
        for (name, schema) in &self.definitions {
            let mut schema = schema.clone();
            refer_to(&new_names, &mut schema);
            let name = new_names.get(name).and_then(Value::as_str).unwrap_or(name);
            renamed.definitions.insert(name.into(), schema);
        }
        Cow::Owned(renamed)
    }
}

/// The object has a property of this name, by itself or in one of its variants.
fn has_property(object: &Map<String, Value>, name: &str) -> bool {
    let has =
        |schema: &Map<String, Value>| schema.get("properties").is_some_and(|all| all.get(name).is_some());
    let variants =
        ["anyOf", "oneOf", "allOf"].iter().filter_map(|word| object.get(*word)?.as_array()).flatten();
    has(object) || variants.filter_map(Value::as_object).any(has)
}

/// Makes every reference in a schema one to the new name.
fn refer_to(new_names: &Map<String, Value>, schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for (word, inner) in object {
                match inner {
                    Value::String(reference) if word == "$ref" => {
                        let new_name =
                            reference.strip_prefix(DEFINITIONS).and_then(|name| new_names.get(name));
                        if let Some(Value::String(new_name)) = new_name {
                            *reference = format!("{DEFINITIONS}{new_name}");
                        }
                    }
                    inner => refer_to(new_names, inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| refer_to(new_names, inner)),
        _ => {}
    }
}
