//! Objects and lists.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Form;
use super::Place;
use super::Writer;
use super::kinds::whole;
use super::limits::Limits;
use super::node::Node;
use super::words::{Words, between, briefly};
use crate::schema::Refusal;

const OPEN_MAP: &str = "an open map cannot be said in strict mode; make it a list of pairs";

const OPEN_LIST: &str = "a list of anything cannot be said in strict mode; say what its `items` are";

/// How often a name may stand in `required`.
const MOST_REQUIRED: usize = 5_000;

impl<'s> Writer<'s> {
    /// A closed object that has all of its properties.
    #[inline]
    pub(super) fn write_object(
        &mut self,
        node: &Node<'s>,
        words: &mut Words,
        place: Place,
    ) -> Result<Form, Refusal> {
        self.checked(Limits::level(place.level + 1))?;
        self.refuse_open(node)?;
        let required = self.required(node)?;
        let mut properties: Vec<(&'s str, Vec<&'s Value>)> = Vec::new();
        let mut by_name = BTreeMap::new();
        for more in node.each("properties") {
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
            let name: String = name.chars().take(super::LONGEST_NAME).collect();
            return self.refuse(format!("`{name}` is required and not in `properties`; say what it is"));
        }
        let mut forms = Form::new();
        for (name, schemas) in properties {
            self.count(|limits| limits.name(name))?;
            let place = place.inside(!required.contains_key(name));
            let form = self.at("properties", |this| {
                this.at(name, |this| {
                    let schemas = schemas.into_iter().map(|schema| this.object(schema));
                    let node = this.checked(Node::all(&schemas.collect::<Result<Vec<_>, _>>()?))?;
                    this.write(&node, place)
                })
            })?;
            forms.insert(name.into(), form.into());
        }
        let fields = (whole(node, "minProperties"), whole(node, "maxProperties"));
        words.add(&between(self.checked(fields.0)?, self.checked(fields.1)?, "field"));

        let required: Vec<_> = forms.keys().cloned().collect();
        let mut form = super::Kind::Object.form();
        form.insert("properties".into(), forms.into());
        form.insert("required".into(), required.into());
        form.insert("additionalProperties".into(), false.into());
        Ok(form)
    }

    #[inline]
    fn refuse_open(&self, node: &Node<'s>) -> Result<(), Refusal> {
        let is_closed = |word| node.each(word).all(|more| *more == Value::Bool(false));
        let has_patterns = node.each("patternProperties").any(|more| *more != json!({}));
        if has_patterns || !is_closed("additionalProperties") || !is_closed("unevaluatedProperties") {
            return self.refuse(OPEN_MAP);
        }
        // A tool without parameters is often said so; anywhere else this means an object of any kind.
        let is_said = ["properties", "additionalProperties"].iter().any(|word| node.get(word).is_some());
        if !is_said && self.path != "$" {
            return self.refuse(
                "an object of any kind cannot be said in strict mode; say what its `properties` are",
            );
        }
        Ok(())
    }

    #[inline]
    fn required(&self, node: &Node<'s>) -> Result<BTreeMap<&'s str, ()>, Refusal> {
        let mut required = BTreeMap::new();
        for names in node.each("required") {
            let Some(names) = names.as_array().filter(|names| names.len() <= MOST_REQUIRED) else {
                return self.refuse(format!("`required` must be a list of at most {MOST_REQUIRED} names"));
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

    /// A list of items that are all of one schema, or of one of several.
    #[inline]
    pub(super) fn write_list(
        &mut self,
        node: &Node<'s>,
        words: &mut Words,
        place: Place,
    ) -> Result<Form, Refusal> {
        self.checked(Limits::level(place.level + 1))?;
        let place = place.inside(false);
        let mut form = super::Kind::List.form();
        let (least, most) = (self.checked(whole(node, "minItems"))?, self.checked(whole(node, "maxItems"))?);
        let items = node.get("items");
        // Lists of schemas in `items` are of earlier drafts.
        let prefix = node.get("prefixItems").or_else(|| items.filter(|items| items.is_array()));
        let most = match prefix.and_then(Value::as_array) {
            None => {
                let Some(items) = items else { return self.refuse(OPEN_LIST) };
                let items = self.at("items", |this| this.write_schema(items, place))?;
                form.insert("items".into(), items);
                most
            }
            Some(prefix) => {
                let length = prefix.len() as u64;
                let more = items.filter(|items| items.is_object() && most.is_none_or(|most| most > length));
                form.insert("items".into(), self.write_tuple(prefix, more, words, place)?);
                if more.is_none() { Some(most.unwrap_or(length).min(length)) } else { most }
            }
        };
        for (word, bound) in [("minItems", least), ("maxItems", most)] {
            if let Some(bound) = bound {
                form.insert(word.into(), bound.into());
            }
        }
        if node.get("uniqueItems") == Some(&Value::Bool(true)) {
            words.add("No item twice.");
        }
        Ok(form)
    }

    /// The items of a tuple: any of them, in an order that only words can tell.
    #[inline]
    fn write_tuple(
        &mut self,
        prefix: &'s [Value],
        more: Option<&'s Value>,
        words: &mut Words,
        place: Place,
    ) -> Result<Value, Refusal> {
        let mut forms = Vec::new();
        for (index, schema) in prefix.iter().enumerate() {
            let step = format!("prefixItems[{index}]");
            forms.push(self.at(&step, |this| this.write_schema(schema, place))?);
        }
        let order: Vec<_> = forms.iter().map(briefly).collect();
        if let Some(more) = more {
            forms.push(self.at("items", |this| this.write_schema(more, place))?);
        }
        let mut different: Vec<Value> = Vec::new();
        for form in forms {
            if !different.contains(&form) {
                different.push(form);
            }
        }
        if different.len() > 1 {
            words.add(&format!("In this order: {}.", order.join(", ")));
            return Ok(json!({ "anyOf": different }));
        }
        different.pop().map_or_else(|| self.refuse(OPEN_LIST), Ok)
    }
}
