//! Selection of tools.

use crate::model::ToolDefinition;
use crate::toolset::{ToolSet, ToolSetError};

impl ToolSet {
    /// Selects the tools for whose definition the predicate returns `true`, in the order of this set.
    ///
    /// To remove a particular tool, prefer [`without`](Self::without), which reports a misspelt name.
    ///
    /// ```
    /// use tool_core::{tool, tools};
    ///
    /// #[tool("Reads a file")]
    /// fn read_file(path: String) -> String {
    ///     path
    /// }
    ///
    /// #[tool("Deletes a file")]
    /// fn delete_file(path: String) {}
    ///
    /// let harmless = tools![read_file, delete_file].filter(|tool| tool.name().starts_with("read_"));
    /// assert_eq!(harmless.len(), 1);
    /// ```
    #[must_use]
    pub fn filter(&self, mut predicate: impl FnMut(&ToolDefinition) -> bool) -> Self {
        let mut selected = self.0.tools.clone();
        selected.retain(|tool| predicate(tool.get().definition()));
        if selected.len() == self.len() {
            return self.clone();
        }
        Self::from_unique(selected).with_settings(self.0.settings)
    }

    /// Removes the tools with these names.
    ///
    /// ```
    /// use tool_core::{tool, tools};
    ///
    /// #[tool("Reads a file")]
    /// fn read_file(path: String) -> String {
    ///     path
    /// }
    ///
    /// #[tool("Deletes a file")]
    /// fn delete_file(path: String) {}
    ///
    /// let tools = tools![read_file, delete_file];
    /// assert_eq!(tools.without(["delete_file"])?.len(), 1);
    /// let error = tools.without(["delete_flie"]).unwrap_err();
    /// assert!(error.to_string().ends_with("did you mean `delete_file`?"));
    /// # Ok::<_, tool_core::toolset::ToolSetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the set has no tool with a given name, so that a misspelt name cannot leave a tool in the set.
    pub fn without<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, ToolSetError> {
        let names = self.check_names(names)?;
        Ok(self.filter(|tool| !names.contains(&tool.name())))
    }

    /// Selects the tools with these names, in the order of this set. [`ToolSet::named`] selects among all tools of the
    /// program.
    ///
    /// # Errors
    ///
    /// Fails if the set has no tool with a given name.
    pub fn only<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, ToolSetError> {
        let names = self.check_names(names)?;
        Ok(self.filter(|tool| names.contains(&tool.name())))
    }

    fn check_names<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>, ToolSetError> {
        let check = |name: &'a str| match self.get(name) {
            Some(_) => Ok(name),
            None => Err(self.unknown_tool(name)),
        };
        names.into_iter().map(check).collect()
    }

    pub(super) fn unknown_tool(&self, name: &str) -> ToolSetError {
        ToolSetError::unknown_tool(name, "in the set", self.definitions().names())
    }
}
