//! Some tools of a set.

use super::Shared;
use crate::model::ToolDefinition;
use crate::toolset::{ToolSet, ToolSetError};

impl ToolSet {
    /// The tools whose definitions the function says yes to, in the order of this set.
    ///
    /// To leave out a certain tool, [`without`](Self::without) is the safer way: a name that is misspelt
    /// is an error there.
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
    pub fn filter(&self, mut keep: impl FnMut(&ToolDefinition) -> bool) -> Self {
        let Shared { tools, by_name, settings, .. } = &*self.0;
        let mut kept = Vec::with_capacity(tools.len());
        let new_places: Vec<_> = tools
            .iter()
            .map(|tool| {
                keep(tool.get().definition()).then(|| {
                    kept.push(tool.clone());
                    kept.len() - 1
                })
            })
            .collect();
        if kept.len() == tools.len() {
            return self.clone();
        }
        // A part of what is sorted is sorted.
        let by_name = by_name.iter().filter_map(|place| new_places[*place]).collect();
        Self::sorted(kept, by_name, *settings)
    }

    /// The set without the tools of these names.
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
    /// The set has no tool of a name, so that a misspelt name leaves no tool in that was to be left out.
    pub fn without<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, ToolSetError> {
        let names = self.known(names)?;
        Ok(self.filter(|tool| !names.contains(&tool.name())))
    }

    /// The tools of these names, in the order of this set. [`ToolSet::named`] chooses among all tools of the
    /// program instead.
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
    /// let tools = tools![read_file, delete_file].only(["read_file"])?;
    /// assert!(tools.get("delete_file").is_none());
    /// # Ok::<_, tool_core::toolset::ToolSetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The set has no tool of a name.
    pub fn only<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, ToolSetError> {
        let names = self.known(names)?;
        Ok(self.filter(|tool| names.contains(&tool.name())))
    }

    fn known<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<&'a str>, ToolSetError> {
        let known = |name: &'a str| match self.get(name) {
            Some(_) => Ok(name),
            None => Err(self.unknown(name)),
        };
        names.into_iter().map(known).collect()
    }

    pub(super) fn unknown(&self, name: &str) -> ToolSetError {
        ToolSetError::unknown(name, "in the set", self.definitions().iter().map(ToolDefinition::name))
    }
}
