//! Tools in strict form.

use std::sync::Arc;

use crate::model::StrictError;
use crate::tool::{StrictTool, Tool};
use crate::toolset::{ToolRef, ToolSet, ToolSetError};

impl ToolSet {
    /// The same tools, each in its [strict form](crate::model::ToolDefinition::into_strict): a provider that can holds the model
    /// to the schemas, so that no argument of another form comes.
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
    /// Strict mode cannot say what a tool takes: the error names the tool and the place in its parameters.
    #[inline]
    pub fn strict(self) -> Result<Self, ToolSetError> {
        self.map(|tool| strict(tool).map_err(|error| ToolSetError::no_strict_form(&error.to_string())))
    }

    /// The same tools, each in its [strict form](crate::model::ToolDefinition::into_strict) if it has one, and else as it is: what
    /// [`strict`](Self::strict) does, without an error.
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
    /// /// Sets labels, of any names: strict mode cannot say that.
    /// #[tool]
    /// fn label(labels: BTreeMap<String, String>) {}
    ///
    /// let set = tools![stay, label].strict_where_possible();
    /// let is_strict = ["stay", "label"].map(|name| set.get(name).unwrap().definition().is_strict());
    /// assert_eq!(is_strict, [true, false]);
    /// ```
    #[inline]
    #[must_use]
    pub fn strict_where_possible(self) -> Self {
        // The names are those of a set already.
        self.map(|tool| Ok(strict(tool).unwrap_or_else(|_| tool.clone()))).unwrap_or(self)
    }
}

#[inline]
fn strict(tool: &ToolRef) -> Result<ToolRef, StrictError> {
    if tool.get().definition().is_strict() {
        return Ok(tool.clone());
    }
    Ok(ToolRef::Shared(Arc::new(StrictTool::new(tool.clone())?)))
}

impl AsRef<dyn Tool> for ToolRef {
    #[inline]
    fn as_ref(&self) -> &(dyn Tool + 'static) {
        match self {
            Self::Static(tool) => *tool,
            Self::Shared(tool) => &**tool,
        }
    }
}
