//! Paths of calls through the agents that were called as tools.

/// The path of a call: its id; or, for a call of an agent that was [called as a tool](crate::Agent::as_tool), the calls of the
/// agents that lead to it, followed by its id.
///
/// A call of an agent is named by its id, or by the name of the agent's tool if only one call of that tool is open. A path that
/// fits several calls is refused.
/// The id of a nested call in [`Run::awaiting_approval`](crate::run::Run::awaiting_approval) is its whole path as one text.
///
/// ```
/// use tool_core::run::CallPath;
///
/// let path = CallPath::from(["billing", "call_1"]);
/// assert_eq!(path.segments(), ["billing", "call_1"]);
/// assert_eq!(CallPath::from("call_1").segments(), ["call_1"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallPath<'a>(Vec<&'a str>);

impl CallPath<'_> {
    /// Returns the segments of the path, the outermost first.
    #[must_use]
    pub fn segments(&self) -> &[&str] {
        &self.0
    }
}

impl<'a> From<&'a str> for CallPath<'a> {
    fn from(id: &'a str) -> Self {
        Self(vec![id])
    }
}

impl<'a> From<&'a String> for CallPath<'a> {
    fn from(id: &'a String) -> Self {
        Self(vec![id])
    }
}

impl<'a, const N: usize> From<[&'a str; N]> for CallPath<'a> {
    fn from(segments: [&'a str; N]) -> Self {
        Self(segments.into())
    }
}

impl<'a> From<&[&'a str]> for CallPath<'a> {
    fn from(segments: &[&'a str]) -> Self {
        Self(segments.into())
    }
}
