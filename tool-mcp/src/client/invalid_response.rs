//! The error that takes the place of a response that cannot be read, so that its call does not wait forever.

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleClient, RxJsonRpcMessage};

/// The data of an error that replaces a response which could not be read.
pub(super) const INVALID_RESPONSE_MARKER: &str = "tool-mcp: invalid response";

pub(super) const NOT_A_MESSAGE: &str = "it is not a valid protocol message";

pub(super) fn too_large(max_message_bytes: usize) -> String {
    format!("it is larger than {max_message_bytes} bytes")
}

/// Returns the error that replaces a response that cannot be read.
pub(super) fn invalid_response(reason: String, id: RequestId) -> RxJsonRpcMessage<RoleClient> {
    let data = ErrorData::internal_error(reason, Some(INVALID_RESPONSE_MARKER.into()));
    JsonRpcMessage::error(data, Some(id))
}
