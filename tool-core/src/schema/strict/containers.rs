//! Objects and lists.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Form;
use super::Position;
use super::Writer;
use super::description::{Description, describe_bounds, summarize};
use super::kinds::length;
use super::limits::Limits;
use super::node::Node;
use crate::schema::Unsupported;

const OPEN_MAP: &str = "strict mode does not support maps with arbitrary keys; use a list of pairs";

const OPEN_LIST: &str = "strict mode does not support lists of anything; specify `items`";

/// The maximum length of `required`.
const MAX_REQUIRED: usize = 5_000;

impl<'s> Writer<'s> {
    /// Writes a closed object with all properties required.
    pub(super) fn write_object(
        &mut self,
        node: &Node<'s>,
        description: &mut Description,
        position: Position,
    ) -> Result<Form, Unsupported> {
        self.checked(Limits::level(position.level + 1))?;
        self.refuse_open(node)?;
        let required = self.required(node)?;
        let mut properties: Vec<(&'s str, Vec<&'s Value>)> = Vec::new();
        let mut by_name = BTreeMap::new();
        for more in node.all("properties") {
            let Some(more) = more.as_object() else { return self.refuse("`properties` must be an object") };
            self.count(|limits| limits.properties(more.len()))?;
            for (name, schema) in more {
                let index = *by_name.entry(&**name).or_insert(properties.len());
                match properties.get_mut(index) {
                    Some((_, schemas)) => schemas.push(schema),
                    None => properties.push((name, vec![schema])),
                }
            }
        }
        if let Some(name) = required.keys().find(|name| !by_name.contains_key(*name)) {
            let name: String = name.chars().take(super::MAX_NAME_CHARS).collect();
            return self.refuse(format!("`{name}` is required but not in `properties`; add it there"));
        }
        let mut forms = Form::new();
        for (name, schemas) in properties {
            self.count(|limits| limits.name(name))?;
            let position = position.nested(!required.contains_key(name));
            let form = self.at("properties", |this| {
                this.at(name, |this| {
                    let schemas = schemas.into_iter().map(|schema| this.object(schema));
                    let node = this.checked(Node::merged(&schemas.collect::<Result<Vec<_>, _>>()?))?;
                    this.write(&node, position)
                })
            })?;
            forms.insert(name.into(), form.into());
        }
        let fields = (length(node, "minProperties"), length(node, "maxProperties"));
        description.add(&describe_bounds(self.checked(fields.0)?, self.checked(fields.1)?, "field"));

        let required: Vec<_> = forms.keys().cloned().collect();
        let mut form = super::ValueKind::Object.form();
        form.insert("properties".into(), forms.into());
        form.insert("required".into(), required.into());
        form.insert("additionalProperties".into(), false.into());
        Ok(form)
    }

    /// Fails if the object may have properties that are not listed.
    fn refuse_open(&self, node: &Node<'s>) -> Result<(), Unsupported> {
        let is_closed = |keyword| node.all(keyword).all(|more| *more == Value::Bool(false));
        let has_patterns = node.all("patternProperties").any(|more| *more != json!({}));
        if has_patterns || !is_closed("additionalProperties") || !is_closed("unevaluatedProperties") {
            return self.refuse(OPEN_MAP);
        }
        // At the top level this is a tool without parameters; anywhere else it is an object of any shape.
        let is_specified =
            ["properties", "additionalProperties"].iter().any(|keyword| node.get(keyword).is_some());
        if !is_specified && self.path != "$" {
            return self.refuse("strict mode does not support objects of any shape; specify `properties`");
        }
        Ok(())
    }

    /// Returns the names of the required properties.
    fn required(&self, node: &Node<'s>) -> Result<BTreeMap<&'s str, ()>, Unsupported> {
        let mut required = BTreeMap::new();
        for names in node.all("required") {
            let Some(names) = names.as_array().filter(|names| names.len() <= MAX_REQUIRED) else {
                return self.refuse(format!("`required` must be a list of at most {MAX_REQUIRED} names"));
            };
            for name in names {
                let Some(name) = name.as_str() else {
                    return self.refuse("`required` must be a list of names");
                };
                required.insert(name, ());
            }
        }
        Ok(required)
    }

    /// Writes a list whose items have one schema or one of several.
    pub(super) fn write_list(
        &mut self,
        node: &Node<'s>,
        description: &mut Description,
        position: Position,
    ) -> Result<Form, Unsupported> {
        self.checked(Limits::level(position.level + 1))?;
        let position = position.nested(false);
        let mut form = super::ValueKind::List.form();
        let (least, most) =
            (self.checked(length(node, "minItems"))?, self.checked(length(node, "maxItems"))?);
        let items = node.get("items");
        // Earlier drafts have lists of schemas in `items`.
        let prefix = node.get("prefixItems").or_else(|| items.filter(|items| items.is_array()));
        let most = match prefix.and_then(Value::as_array) {
            None => {
                let Some(items) = items else { return self.refuse(OPEN_LIST) };
                let items = self.at("items", |this| this.write_schema(items, position))?;
                form.insert("items".into(), items);
                most
            }
            Some(prefix) => {
                let prefix_length = prefix.len() as u64;
                let more =
                    items.filter(|items| items.is_object() && most.is_none_or(|most| most > prefix_length));
                form.insert("items".into(), self.write_tuple(prefix, more, description, position)?);
                if more.is_none() { Some(most.unwrap_or(prefix_length).min(prefix_length)) } else { most }
            }
        };
        for (keyword, bound) in [("minItems", least), ("maxItems", most)] {
            if let Some(bound) = bound {
                form.insert(keyword.into(), bound.into());
            }
        }
        if node.get("uniqueItems") == Some(&Value::Bool(true)) {
            description.add("No item twice.");
        }
        Ok(form)
    }

    /// Writes the items of a tuple as alternatives; the order goes into the description.
    fn write_tuple(
        &mut self,
        prefix: &'s [Value],
        more: Option<&'s Value>,
        description: &mut Description,
        position: Position,
    ) -> Result<Value, Unsupported> {
        let mut forms = Vec::new();
        for (index, schema) in prefix.iter().enumerate() {
            let step = format!("prefixItems[{index}]");
            forms.push(self.at(&step, |this| this.write_schema(schema, position))?);
        }
        let order: Vec<_> = forms.iter().map(summarize).collect();
        if let Some(more) = more {
            forms.push(self.at("items", |this| this.write_schema(more, position))?);
        }
        let mut distinct: Vec<Value> = Vec::new();
        for form in forms {
            if !distinct.contains(&form) {
                distinct.push(form);
            }
        }
        if distinct.len() > 1 {
            description.add(&format!("In this order: {}.", order.join(", ")));
            return Ok(json!({ "anyOf": distinct }));
        }
        distinct.pop().map_or_else(|| self.refuse(OPEN_LIST), Ok)
    }
}
