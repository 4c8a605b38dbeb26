//! A transport of the SDK with an eye on what passes.

use std::future::Future;
use std::sync::Arc;

use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use super::inbox::Inbox;

/// Shows to the inbox what passes a transport.
pub(super) struct Observed<T> {
    transport: T,
    inbox: Arc<Inbox>,
}

impl<T> Observed<T> {
    pub(super) fn new(transport: T, inbox: Arc<Inbox>) -> Self {
        Self { transport, inbox }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Observed<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inbox.sends(&message);
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.transport.receive().await;
        match &message {
            Some(message) => self.inbox.receives(message),
            None => self.inbox.close(),
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inbox.close();
        self.transport.close().await
    }
}

/// However the connection ends, those who wait for an answer hear of it.
impl<T> Drop for Observed<T> {
    fn drop(&mut self) {
        self.inbox.close();
    }
}
