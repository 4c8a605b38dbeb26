//! What follows a layer on the way of a request: the other layers, and the model.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use futures_channel::mpsc;
use futures_util::stream::{self, StreamExt};
use futures_util::{FutureExt, SinkExt};

use super::layer_trait::Layer;
use crate::model::{ChatModel, ChatRequest, ChatStream, Delta, ModelError};

/// The chunks of a reply; the last one is [`Delta::Done`] with the whole response. Without a reader of the stream, it is the only one.
pub type Deltas<'a> = ChatStream<'a>;

/// The layers inside of one, and the model. A layer can call it several times.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    layers: &'a [Arc<dyn Layer>],
    model: &'a dyn ChatModel,
    is_streamed: bool,
}

impl<'a> Next<'a> {
    pub(crate) fn new(layers: &'a [Arc<dyn Layer>], model: &'a dyn ChatModel, is_streamed: bool) -> Self {
        Self { layers, model, is_streamed }
    }

    /// Sends a request through the remaining layers to the model.
    pub fn call(self, request: ChatRequest<'a>) -> Deltas<'a> {
        match self.layers.split_first() {
            Some((layer, layers)) => layer.model(request, Self { layers, ..self }),
            None if self.is_streamed => stream(self.model, request),
            None => {
                let response = async move { self.model.chat(&request).await.map(Delta::Done) };
                ChatStream::new(stream::once(response))
            }
        }
    }

    /// Returns this with another model, for example to ask it after the first one has failed.
    #[must_use]
    pub fn with_model(self, model: &'a dyn ChatModel) -> Self {
        Self { model, ..self }
    }

    /// Returns the model.
    #[must_use]
    pub fn model(&self) -> &'a dyn ChatModel {
        self.model
    }

    /// Returns `true` if somebody reads the reply while it arrives.
    #[must_use]
    pub fn is_streamed(&self) -> bool {
        self.is_streamed
    }
}

/// Streams the reply to a request that the stream owns: the model borrows it.
fn stream<'a>(model: &'a dyn ChatModel, request: ChatRequest<'a>) -> ChatStream<'a> {
    let (mut sender, deltas) = mpsc::channel(0);
    let sending = async move {
        let mut deltas = model.stream(&request);
        while let Some(delta) = deltas.next().await {
            if sender.send(delta).await.is_err() {
                break;
            }
        }
    };
    let silent = stream::once(sending.boxed()).filter_map(|()| ready(None));
    ChatStream::new(stream::select(deltas, silent))
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}

/// The error by which a layer ends the run from within a stream.
#[derive(Debug, thiserror::Error)]
#[error("the layer `{layer}` has ended the run: {reason}")]
pub(crate) struct RunEnded {
    pub(crate) layer: String,
    pub(crate) reason: String,
}

impl<'a> Next<'a> {
    /// Returns the end of a reply with which a layer ends the run for this reason: see
    /// [`StopReason::Blocked`](crate::run::StopReason::Blocked).
    #[must_use]
    pub fn end_run(layer: &str, reason: impl Into<String>) -> ModelError {
        ModelError::new(RunEnded { layer: layer.to_owned(), reason: reason.into() }).permanent()
    }
}
