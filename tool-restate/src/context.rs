//! Values that travel with a question as JSON, and become values of the tools' context again on the worker.

use std::any::type_name;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tool_core::ToolContext;
use tool_core::agent::Ask;

use crate::names::JsonContext;

/// Returns the name by which a type travels: its own, without its path.
pub(crate) fn type_key<T>() -> String {
    let name = type_name::<T>();
    let path = name.split('<').next().unwrap_or(name);
    path.rsplit("::").next().unwrap_or(path).to_owned()
}

type ForAsk = dyn Fn(Ask, &Value) -> Result<Ask, String> + Send + Sync;
type ForCall = dyn Fn(ToolContext, &Value) -> Result<ToolContext, String> + Send + Sync;

/// The types that the workers read.
#[derive(Clone, Default)]
pub(crate) struct ContextTypes(BTreeMap<String, (Arc<ForAsk>, Arc<ForCall>)>);

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value)
        .map_err(|error| format!("the context `{}` cannot be read: {error}", type_key::<T>()))
}

impl ContextTypes {
    pub(crate) fn add<T: DeserializeOwned + Send + Sync + 'static>(&mut self) {
        let for_ask: Arc<ForAsk> = Arc::new(|ask, value| Ok(ask.context(read::<T>(value)?)));
        let for_call: Arc<ForCall> = Arc::new(|context, value| Ok(context.with(read::<T>(value)?)));
        self.0.insert(type_key::<T>(), (for_ask, for_call));
    }

    pub(crate) fn apply_to_ask(&self, mut ask: Ask, values: &JsonContext) -> Result<Ask, String> {
        for (name, value) in values {
            ask = (self.get(name)?.0)(ask, value)?;
        }
        Ok(ask)
    }

    pub(crate) fn apply_to_call(
        &self,
        mut context: ToolContext,
        values: &JsonContext,
    ) -> Result<ToolContext, String> {
        for (name, value) in values {
            context = (self.get(name)?.1)(context, value)?;
        }
        Ok(context)
    }

    fn get(&self, name: &str) -> Result<&(Arc<ForAsk>, Arc<ForCall>), String> {
        let unknown = || {
            format!(
                "the question has a context `{name}` that the worker does not read; add `.context_json::<{name}>()` to it"
            )
        };
        self.0.get(name).ok_or_else(unknown)
    }
}
