//! What hosts are offered: the definitions of a set in the words of the protocol.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{ListToolsResult, Tool};
use serde_json::{Map, Value};
use tool_core::{ToolDefinition, ToolSet};

use super::annotations;
use super::live::Generation;
use super::settings::Settings;

/// The tools of one generation that are served.
pub(super) struct Offer {
    pub(super) set: ToolSet,
    generation: u64,
    tools: Vec<Tool>,
}

impl Offer {
    pub(super) fn of(generation: Generation, settings: &Settings) -> Self {
        let Generation { number, set } = generation;
        let serves_unapproved = settings.serves_unapproved();
        let set = set.filter(|definition| serves_unapproved || !definition.policy().needs_approval);
        let tools = set.definitions().iter().map(|definition| wire(definition, settings)).collect();
        Self { set, generation: number, tools }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// A page of the list. A cursor is of one generation: a list of tools that were replaced in the middle would be of
    /// neither set.
    pub(super) fn page(&self, cursor: Option<&str>, size: usize) -> Result<ListToolsResult, ErrorData> {
        let wrong =
            || ErrorData::invalid_params("there is no such cursor: list the tools from the start", None);
        let from = match cursor {
            None => 0,
            Some(cursor) => {
                let (generation, from) = cursor.split_once('.').ok_or_else(wrong)?;
                let is_current = generation.parse() == Ok(self.generation);
                from.parse().ok().filter(|from| is_current && *from <= self.tools.len()).ok_or_else(wrong)?
            }
        };
        let to = from.saturating_add(size).min(self.tools.len());
        let mut page = ListToolsResult::with_all_items(self.tools[from..to].to_vec());
        page.next_cursor = (to < self.tools.len()).then(|| format!("{}.{to}", self.generation));
        Ok(page)
    }
}

fn wire(definition: &ToolDefinition, settings: &Settings) -> Tool {
    let name = definition.name().to_owned();
    let description = definition.description().map(|text| Cow::Owned(text.to_owned()));
    let mut tool = Tool::new_with_raw(name, description, input_schema(definition.parameters()));
    tool.annotations = annotations::of(definition);
    tool.output_schema =
        settings.output_schemas.get(definition.name()).map(|schema| Arc::clone(&schema.json));
    tool
}

/// The protocol asks that the schema says `object`, which a set does not where there are properties.
fn input_schema(parameters: &Value) -> Map<String, Value> {
    let mut schema = parameters.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(generation: u64, number: usize) -> Offer {
        let tool = |index| Tool::new_with_raw(format!("tool_{index}"), None, Map::new());
        Offer { set: ToolSet::default(), generation, tools: (0..number).map(tool).collect() }
    }

    #[test]
    fn pages_come_in_order_and_are_of_one_generation() {
        for (number, size, pages) in [(0, 2, 1), (1, 2, 1), (2, 2, 1), (5, 2, 3), (5, 100, 1)] {
            let offer = offer(7, number);
            let (mut names, mut cursor, mut count) = (Vec::new(), None, 0);
            loop {
                let page = offer.page(cursor.as_deref(), size).unwrap();
                assert!(page.tools.len() <= size);
                names.extend(page.tools.into_iter().map(|tool| tool.name.into_owned()));
                count += 1;
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(names, (0..number).map(|index| format!("tool_{index}")).collect::<Vec<_>>());
            assert_eq!(count, pages);
        }
        for wrong in ["", "2", "6.2", "7.6", "7.-1", "7.", "x.2"] {
            assert!(offer(7, 5).page(Some(wrong), 2).is_err(), "{wrong}");
        }
    }
}
