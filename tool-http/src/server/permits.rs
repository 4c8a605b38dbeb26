//! Permits of senders, for what can outlast its request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits how many permits of one kind are held, by all senders and by each of them. Clones share the permits.
#[derive(Clone, Debug)]
pub struct SenderPermits {
    max: usize,
    max_of_sender: usize,
    held: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// A permit, which is held until it is dropped.
#[derive(Debug)]
pub struct SenderPermit {
    permits: SenderPermits,
    sender: Arc<str>,
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitLimit {
    /// All senders together hold as many as are allowed.
    All,
    /// The sender holds this many, which is the limit of each.
    Sender(usize),
}

impl SenderPermits {
    /// Creates the permits, which nobody holds.
    #[must_use]
    pub fn new(max: usize, max_of_sender: usize) -> Self {
        Self { max, max_of_sender, held: Arc::default() }
    }

    /// Gives a permit to a sender.
    ///
    /// # Errors
    ///
    /// Returns the limit that is reached.
    pub fn acquire(&self, sender: impl Into<Arc<str>>) -> Result<SenderPermit, PermitLimit> {
        let mut held = self.held();
        if held.values().sum::<usize>() >= self.max {
            return Err(PermitLimit::All);
        }
        let sender = sender.into();
        match held.get_mut(&sender) {
            Some(held) if *held >= self.max_of_sender => return Err(PermitLimit::Sender(self.max_of_sender)),
            Some(held) => *held += 1,
            None => drop(held.insert(Arc::clone(&sender), 1)),
        }
        Ok(SenderPermit { permits: self.clone(), sender })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        // Each change is a single step.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SenderPermit {
    fn drop(&mut self) {
        let mut all = self.permits.held();
        match all.get_mut(&self.sender) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(all.remove(&self.sender)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_all_senders_and_each_of_them_until_permits_are_dropped() {
        let permits = SenderPermits::new(3, 2);
        let acquire = |sender: &str| permits.clone().acquire(sender);
        let (first, second) = (acquire("eve").unwrap(), acquire("eve").unwrap());
        assert_eq!(acquire("eve").unwrap_err(), PermitLimit::Sender(2));
        let third = acquire("anna").unwrap();
        assert_eq!(acquire("anna").unwrap_err(), PermitLimit::All);
        drop(first);
        let fourth = acquire("eve").unwrap();
        drop((second, third, fourth));
        assert_eq!(permits.held().len(), 0);
    }
}
