//! An answer that several requests receive.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use tokio::sync::watch;
use tool_core::Message;
use tool_core::model::Delta;

use super::backend::Deltas;
use super::error::ApiError;

type Item = Result<Delta, ApiError>;

type OnComplete = dyn Fn(&Arc<SharedAnswer>, usize) + Send + Sync;

/// The deltas of an answer, those so far and those to come. They are generated only while someone reads them, and cancelled
/// when the last reader is dropped.
pub(super) struct SharedAnswer {
    /// Polled by one reader at a time.
    source: tokio::sync::Mutex<Deltas>,
    progress: watch::Sender<Progress>,
    /// Receives the complete answer, and about the number of its bytes.
    on_complete: Box<OnComplete>,
}

/// The deltas so far.
#[derive(Default)]
struct Progress {
    items: Vec<Item>,
    has_ended: bool,
}

impl SharedAnswer {
    pub(super) fn new(
        source: Deltas,
        on_complete: impl Fn(&Arc<Self>, usize) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let source = AssertUnwindSafe(source).catch_unwind();
        let source = source.map(|item| item.unwrap_or_else(|_| Err(ApiError::internal())));
        Arc::new(Self {
            source: tokio::sync::Mutex::new(source.boxed()),
            progress: watch::Sender::default(),
            on_complete: Box::new(on_complete),
        })
    }

    /// Returns `true` after the last delta.
    pub(super) fn has_ended(&self) -> bool {
        self.progress.borrow().has_ended
    }

    /// Returns all deltas, from the first one.
    pub(super) fn deltas(self: Arc<Self>) -> Deltas {
        let items = stream::unfold((self, 0), |(answer, index)| async move {
            let item = answer.item(index).await?;
            Some((item, (answer, index + 1)))
        });
        items.boxed()
    }

    /// Returns an item as soon as there is one, or `None` after the last one.
    async fn item(self: &Arc<Self>, index: usize) -> Option<Item> {
        let mut progress = self.progress.subscribe();
        loop {
            {
                let known = progress.borrow_and_update();
                if known.has_ended || index < known.items.len() {
                    return known.items.get(index).cloned();
                }
            }
            tokio::select! {
                biased;
                _ = progress.changed() => {}
                mut source = self.source.lock() => {
                    // Another reader may have generated it meanwhile.
                    if !progress.has_changed().unwrap_or(true) {
                        self.generate(&mut source).await;
                    }
                }
            }
        }
    }

    /// Generates the next item.
    async fn generate(self: &Arc<Self>, source: &mut Deltas) {
        let item = source.next().await;
        let is_last = !matches!(&item, Some(Ok(delta)) if !matches!(delta, Delta::Done(_)));
        if is_last {
            // The source owns the state of the server, which owns this answer: dropping it ends the cycle.
            *source = stream::empty().boxed();
            if matches!(&item, Some(Ok(_))) {
                let bytes =
                    self.progress.borrow().items.iter().chain(&item).flatten().map(approximate_bytes).sum();
                (self.on_complete)(self, bytes);
            }
        }
        self.progress.send_modify(|progress| {
            progress.items.extend(item);
            progress.has_ended = is_last;
        });
    }
}

/// Returns about the number of bytes that a delta takes.
fn approximate_bytes(delta: &Delta) -> usize {
    100 + match delta {
        Delta::Text(text) | Delta::Reasoning(text) | Delta::Refusal(text) | Delta::Arguments { text, .. } => {
            text.len()
        }
        Delta::Done(response) => Message::Assistant(response.message.clone()).approximate_bytes(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::sync::mpsc;
    use tool_core::model::{AssistantMessage, ChatResponse};

    use super::*;

    fn answer() -> (mpsc::UnboundedSender<Item>, Arc<SharedAnswer>) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let source = stream::poll_fn(move |context| receiver.poll_recv(context));
        (sender, SharedAnswer::new(source.boxed(), |_, _| {}))
    }

    fn text(text: &str) -> Item {
        Ok(Delta::Text(text.into()))
    }

    fn done() -> Item {
        Ok(Delta::Done(ChatResponse::new(AssistantMessage::text("ab"))))
    }

    /// Shows the items of a stream.
    async fn read(deltas: Deltas) -> String {
        let shown = deltas.map(|item| match item {
            Ok(Delta::Text(text)) => text,
            Ok(_) => ".".to_owned(),
            Err(error) => error.message().to_owned(),
        });
        shown.collect().await
    }

    #[tokio::test]
    async fn every_reader_receives_all_items() {
        let (sender, answer) = answer();
        sender.send(text("a")).unwrap();
        let mut first = Arc::clone(&answer).deltas();
        assert!(matches!(first.next().await, Some(Ok(Delta::Text(text))) if text == "a"));
        let second = tokio::spawn(read(Arc::clone(&answer).deltas()));
        let third = tokio::spawn(read(Arc::clone(&answer).deltas()));
        sender.send(text("b")).unwrap();
        sender.send(done()).unwrap();
        assert_eq!(read(first).await, "b.");
        assert_eq!((second.await.unwrap(), third.await.unwrap()), ("ab.".into(), "ab.".into()));
        assert_eq!(read(answer.deltas()).await, "ab.", "after the end");
    }

    #[tokio::test]
    async fn the_source_is_dropped_with_the_last_reader() {
        let (sender, answer) = answer();
        let (first, second) = (Arc::clone(&answer).deltas(), answer.deltas());
        drop(first);
        assert!(!sender.is_closed());
        drop(second);
        assert!(sender.is_closed());
    }

    #[tokio::test]
    async fn nothing_follows_an_error_or_a_panic() {
        let (sender, answer) = answer();
        sender.send(Err(ApiError::internal())).unwrap();
        sender.send(text("a")).unwrap();
        assert_eq!(read(Arc::clone(&answer).deltas()).await, "internal server error");
        assert!(sender.is_closed());
        let source = stream::once(ready(())).map(|()| panic!("a panic of a model"));
        let answer = SharedAnswer::new(source.boxed(), |_, _| {});
        for _ in 0..2 {
            assert_eq!(read(Arc::clone(&answer).deltas()).await, "internal server error");
        }
    }
}
