//! Tools in strict form.

use std::sync::Arc;

use crate::model::StrictError;
use crate::tool::{StrictTool, Tool};
use crate::toolset::{ToolRef, ToolSet, ToolSetError};

impl ToolSet {
    /// Converts all tools to their [strict form](crate::model::ToolDefinition::into_strict). Providers that support it constrain
    /// the model to the schemas, so that all arguments have the required form.
    ///
    /// ```
    /// use tool_core::{tool, tools};
    ///
    /// /// Books a hotel.
    /// #[tool]
    /// fn stay(city: String, nights: Option<u8>) -> String {
    ///     format!("{} nights in {city}", nights.unwrap_or(1))
    /// }
    ///
    /// let set = tools![stay].strict()?;
    /// let stay = set.get("stay").unwrap().definition();
    /// assert_eq!(stay.parameters()["required"], serde_json::json!(["city", "nights"]));
    /// # Ok::<_, tool_core::toolset::ToolSetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if strict mode does not support the parameters of a tool. The error names the tool and the path in its
    /// parameters.
    pub fn strict(self) -> Result<Self, ToolSetError> {
        self.map_tools(|tool| {
            to_strict(tool).map_err(|error| ToolSetError::no_strict_form(&error.to_string()))
        })
    }

    /// Converts tools to their [strict form](crate::model::ToolDefinition::into_strict) where they have one and leaves the others
    /// unchanged: [`strict`](Self::strict) without the error.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use tool_core::{tool, tools};
    ///
    /// /// Books a hotel.
    /// #[tool]
    /// fn stay(city: String) {}
    ///
    /// /// Sets labels with any names, which strict mode does not support.
    /// #[tool]
    /// fn label(labels: BTreeMap<String, String>) {}
    ///
    /// let set = tools![stay, label].strict_where_possible();
    /// let is_strict = ["stay", "label"].map(|name| set.get(name).unwrap().definition().is_strict());
    /// assert_eq!(is_strict, [true, false]);
    /// ```
    #[must_use]
    pub fn strict_where_possible(self) -> Self {
        // The names are valid, because they are those of a set.
        self.map_tools(|tool| Ok(to_strict(tool).unwrap_or_else(|_| tool.clone()))).unwrap_or(self)
    }
}

fn to_strict(tool: &ToolRef) -> Result<ToolRef, StrictError> {
    if tool.get().definition().is_strict() {
        return Ok(tool.clone());
    }
    Ok(ToolRef::Shared(Arc::new(StrictTool::new(tool.clone())?)))
}

impl AsRef<dyn Tool> for ToolRef {
    fn as_ref(&self) -> &(dyn Tool + 'static) {
        match self {
            Self::Static(tool) => *tool,
            Self::Shared(tool) => &**tool,
        }
    }
}
