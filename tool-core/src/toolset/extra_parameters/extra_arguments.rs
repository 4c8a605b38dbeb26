//! The extra arguments of a call, which the application receives.

use std::borrow::Cow;
use std::sync::Arc;

use super::schema::ExtraProperties;
use crate::arguments::{Contract, Members, Mode, Repair, object_text, write_object};
use crate::model::ToolCall;
use crate::schema::{arguments_schema, for_providers};
use crate::tool::{Injection, ToolArguments, ToolContext, ToolError, arguments_contract};
use crate::toolset::redefined::{Converted, Purpose};
use crate::toolset::set::ToolRef;

/// The arguments that are added to every tool of a set.
pub(super) struct ExtraArguments {
    extra: ExtraProperties,
    contract: Contract,
    handler: Handler,
    pub(super) passes_to_tool: bool,
}

/// Decodes the fields from the text of an object and, for a call, calls the function of the application. Returns the repairs.
pub(super) type Handler =
    Box<dyn Fn(&ToolCall, &str, &Contract, Mode, Purpose) -> Result<Vec<Repair>, ToolError> + Send + Sync>;

impl ExtraArguments {
    /// Returns `None` if the type is not a struct with named fields.
    pub(super) fn new<T: ToolArguments>(handler: Handler) -> Option<Self> {
        let extra = ExtraProperties::new(for_providers(arguments_schema::<T>()))?;
        Some(Self { extra, contract: arguments_contract::<T>(), handler, passes_to_tool: false })
    }

    /// Adds the parameters to a tool. Fails with the reason, worded to follow "the tool `x`".
    pub(super) fn add_to(self: &Arc<Self>, tool: &ToolRef) -> Result<ToolRef, String> {
        let definition = tool.get().definition();
        let parameters = self.extra.merge_into(definition.parameters())?;
        let extended = definition.clone().with_parameters(parameters);
        // A strict definition stays strict.
        let definition = if definition.is_strict() {
            extended
                .into_strict()
                .map_err(|error| format!("has no strict form with them, at {}", error.path()))?
        } else {
            extended
        };
        let injections = tool.get().injections();
        let injections =
            injections.map(|types| types.iter().copied().chain([Injection::new::<ToolCall>()]).collect());
        let (extra, name) = (Arc::clone(self), definition.name().to_owned());
        let convert = move |arguments: &str, context: &ToolContext, purpose| {
            extra.take(&name, arguments, context, purpose)
        };
        Ok(tool.converted(definition, Converted { convert: Box::new(convert), injections }))
    }

    /// Takes the extra arguments out of a call and passes them to the application. Returns the tool's own, or `None` if
    /// it receives all of them unchanged; and the repairs.
    fn take(
        &self,
        tool: &str,
        arguments: &str,
        context: &ToolContext,
        purpose: Purpose,
    ) -> Result<(Option<String>, Vec<Repair>), ToolError> {
        let mode = context.read_mode();
        let object = object_text(arguments, mode)?;
        let Members(members) = Members::of(&object);
        let (extra, own): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|(name, _)| self.extra.properties.contains_key(&**name));
        // Without one, the tool was not called through a set.
        let call =
            context.call().map_or_else(|| Cow::Owned(ToolCall::new("", tool, arguments)), Cow::Borrowed);
        let mut repairs = (self.handler)(&call, &write_object(&extra), &self.contract, mode, purpose)?;
        if self.passes_to_tool {
            return Ok((None, repairs));
        }
        if let Cow::Owned(repaired) = &object {
            repairs.insert(0, Repair::for_text(arguments, repaired));
        }
        let own = (!extra.is_empty()).then(|| write_object(&own));
        Ok((
            own.or(match object {
                Cow::Owned(repaired) => Some(repaired),
                Cow::Borrowed(_) => None,
            }),
            repairs,
        ))
    }
}
