//! Tools in strict form.

use std::sync::Arc;

use super::{ToolRef, ToolSet, ToolSetError};
use crate::Tool;
use crate::tool::StrictTool;

impl ToolSet {
    /// The same tools, each in its [strict form](crate::ToolDefinition::into_strict): a provider that can holds the model
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
    /// # Ok::<_, tool_core::ToolSetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Strict mode cannot say what a tool takes: the error names the tool and the place in its parameters.
    #[inline]
    pub fn strict(self) -> Result<Self, ToolSetError> {
        self.map(|tool| {
            if tool.get().definition().is_strict() {
                return Ok(tool.clone());
            }
            match StrictTool::new(tool.clone()) {
                Ok(strict) => Ok(ToolRef::Shared(Arc::new(strict))),
                Err(error) => Err(ToolSetError::no_strict_form(&error.to_string())),
            }
        })
    }
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
