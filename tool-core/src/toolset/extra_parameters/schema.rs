//! Schemas of tools with extra parameters.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// The prefix of references to definitions.
const DEFINITIONS: &str = "#/$defs/";

/// The properties that are added to the parameters of a tool: the fields of a struct.
#[derive(Clone)]
pub(super) struct ExtraProperties {
    pub(super) properties: Map<String, Value>,
    pub(super) required: Vec<String>,
    /// The definitions that the properties refer to.
    definitions: Map<String, Value>,
}

impl ExtraProperties {
    /// Extracts the fields of a struct from its schema. Returns `None` if it has no named fields.
    pub(super) fn new(mut schema: Value) -> Option<Self> {
        let mut members = |keyword: &str| match schema.get_mut(keyword).map(Value::take) {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        };
        let (properties, definitions) = (members("properties"), members("$defs"));
        if properties.is_empty() {
            return None;
        }
        let required = schema["required"].as_array().into_iter().flatten();
        let required = required.filter_map(Value::as_str).map(str::to_owned).collect();
        Some(Self { properties, required, definitions })
    }

    /// Adds these properties at the end of the parameters of a tool.
    /// Returns why they cannot be added, worded to follow "the tool `x`".
    pub(super) fn merge_into(&self, parameters: &Value) -> Result<Value, String> {
        let not_an_object = || "has parameters that are not an object, so nothing can be added".to_owned();
        let mut object = parameters.as_object().ok_or_else(not_an_object)?.clone();
        if let Some(name) = self.properties.keys().find(|name| has_property(&object, name)) {
            return Err(format!(
                "already has a parameter `{name}`; rename the field, for example with `#[serde(rename = \"…\")]`"
            ));
        }
        let mut definitions = match object.get("$defs") {
            Some(Value::Object(definitions)) => definitions.clone(),
            _ => Map::new(),
        };
        let ours = self.without_collisions(&definitions);
        let properties = object.entry("properties").or_insert_with(|| json!({}));
        properties.as_object_mut().ok_or_else(not_an_object)?.extend(ours.properties.clone());
        if !ours.required.is_empty() {
            let required = object.entry("required").or_insert_with(|| json!([]));
            required
                .as_array_mut()
                .ok_or_else(not_an_object)?
                .extend(ours.required.iter().map(|name| name.as_str().into()));
        }
        if !ours.definitions.is_empty() {
            definitions.extend(ours.definitions.clone());
            object.insert("$defs".into(), Value::Object(definitions));
        }
        Ok(Value::Object(object))
    }

    /// Renames definitions whose names have another meaning in the schema of the tool.
    fn without_collisions(&self, theirs: &Map<String, Value>) -> Cow<'_, Self> {
        let shared = || self.definitions.iter().filter(|(name, _)| theirs.contains_key(*name));
        // Definitions refer to each other, so they are equal only if all of them are.
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
        renamed.properties.values_mut().for_each(|schema| update_references(&new_names, schema));
        for (name, schema) in &self.definitions {
            let mut schema = schema.clone();
            update_references(&new_names, &mut schema);
            let name = new_names.get(name).and_then(Value::as_str).unwrap_or(name);
            renamed.definitions.insert(name.into(), schema);
        }
        Cow::Owned(renamed)
    }
}

/// Returns `true` if the object or one of its variants has a property with this name.
fn has_property(object: &Map<String, Value>, name: &str) -> bool {
    let has =
        |schema: &Map<String, Value>| schema.get("properties").is_some_and(|all| all.get(name).is_some());
    let variants =
        ["anyOf", "oneOf", "allOf"].iter().filter_map(|keyword| object.get(*keyword)?.as_array()).flatten();
    has(object) || variants.filter_map(Value::as_object).any(has)
}

/// Replaces references to renamed definitions in a schema.
fn update_references(new_names: &Map<String, Value>, schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for (keyword, inner) in object {
                match inner {
                    Value::String(reference) if keyword == "$ref" => {
                        let new_name =
                            reference.strip_prefix(DEFINITIONS).and_then(|name| new_names.get(name));
                        if let Some(Value::String(new_name)) = new_name {
                            *reference = format!("{DEFINITIONS}{new_name}");
                        }
                    }
                    inner => update_references(new_names, inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| update_references(new_names, inner)),
        _ => {}
    }
}
