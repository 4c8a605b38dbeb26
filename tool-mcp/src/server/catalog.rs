//! The served tools in the form of the protocol.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{ListToolsResult, Tool};
use serde_json::{Map, Value, json};
use tool_core::ToolSet;
use tool_core::model::ToolDefinition;

use super::annotations::tool_annotations;
use super::config::Config;
use super::tools_handle::Generation;

/// The served tools of one generation.
pub(super) struct ToolCatalog {
    pub(super) set: ToolSet,
    pub(super) generation: u64,
    tools: Vec<Tool>,
}

impl ToolCatalog {
    pub(super) fn new(generation: Generation, config: &Config) -> Self {
        let Generation { number, set } = generation;
        let serves_all = config.serves_tools_with_approval();
        let set = set.filter(|definition| serves_all || !definition.policy().needs_approval);
        let tools = set.definitions().iter().map(|definition| wire_tool(definition, config)).collect();
        Self { set, generation: number, tools }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Returns a page of the list, without the tools that are not visible. A cursor is valid for one generation only: a list that spans a replacement would match
    /// neither set.
    pub(super) fn page(
        &self,
        cursor: Option<&str>,
        size: usize,
        is_visible: impl Fn(&str) -> bool,
    ) -> Result<ListToolsResult, ErrorData> {
        let invalid = || ErrorData::invalid_params("unknown cursor; list the tools from the start", None);
        let start = match cursor {
            None => 0,
            Some(cursor) => {
                let (generation, start) = cursor.split_once('.').ok_or_else(invalid)?;
                let is_current = generation.parse() == Ok(self.generation);
                let start = start.parse().ok();
                start.filter(|start| is_current && *start <= self.tools.len()).ok_or_else(invalid)?
            }
        };
        let end = start.saturating_add(size).min(self.tools.len());
        let visible = self.tools[start..end].iter().filter(|tool| is_visible(&tool.name));
        let mut page = ListToolsResult::with_all_items(visible.cloned().collect());
        page.next_cursor = (end < self.tools.len()).then(|| format!("{}.{end}", self.generation));
        Ok(page)
    }
}

fn wire_tool(definition: &ToolDefinition, config: &Config) -> Tool {
    let name = definition.name().to_owned();
    let description = definition.description().map(|text| Cow::Owned(text.to_owned()));
    let mut tool = Tool::new_with_raw(name, description, input_schema(definition.parameters()));
    tool.annotations = tool_annotations(definition);
    let output_schema = config.output_schemas.get(definition.name());
    tool.output_schema = output_schema.map(|schema| Arc::new(with_object_properties(schema.json.clone())));
    tool
}

/// Adds the `type` that the protocol requires, which definitions omit where there are properties.
fn input_schema(parameters: &Value) -> Map<String, Value> {
    let mut schema = parameters.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    with_object_properties(schema)
}

/// Writes boolean schemas of properties as objects: the TypeScript SDK refuses the whole list of tools otherwise.
fn with_object_properties(mut schema: Map<String, Value>) -> Map<String, Value> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        match property {
            Value::Bool(true) => *property = json!({}),
            Value::Bool(false) => *property = json!({ "not": {} }),
            _ => {}
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(generation: u64, number: usize) -> ToolCatalog {
        let tool = |index| Tool::new_with_raw(format!("tool_{index}"), None, Map::new());
        ToolCatalog { set: ToolSet::default(), generation, tools: (0..number).map(tool).collect() }
    }

    #[test]
    fn schemas_have_the_form_that_hosts_require() {
        let given = json!({ "properties": { "a": true, "b": false, "c": { "items": true } } });
        let expected = json!({
            "properties": { "a": {}, "b": { "not": {} }, "c": { "items": true } },
            "type": "object",
        });
        assert_eq!(Value::Object(input_schema(&given)), expected);
        assert_eq!(Value::Object(input_schema(&json!({}))), json!({ "type": "object" }));
    }

    #[test]
    fn pages_are_in_order_and_of_one_generation() {
        for (number, size, pages) in [(0, 2, 1), (1, 2, 1), (2, 2, 1), (5, 2, 3), (5, 100, 1)] {
            let catalog = catalog(7, number);
            let (mut names, mut cursor, mut count) = (Vec::new(), None, 0);
            loop {
                let page = catalog.page(cursor.as_deref(), size, |_| true).unwrap();
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
        for invalid in ["", "2", "6.2", "7.6", "7.-1", "7.", "x.2"] {
            assert!(catalog(7, 5).page(Some(invalid), 2, |_| true).is_err(), "{invalid}");
        }
    }
}
