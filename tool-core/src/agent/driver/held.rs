//! Drivers of runs that are part of an outer one.

use std::mem;
use std::ops::{Deref, DerefMut};

use crate::agent::RunDriver;
use crate::run::Run;

/// A driver that has its run until this is dropped, also by a panic. Nothing is awaited meanwhile, because a save would find nothing in the
/// place of the run.
pub(super) struct HeldRun<'a, D: HasDriver = RunDriver> {
    driver: &'a mut D,
    /// The place of the run, unless it is the outermost.
    slot: Option<&'a mut Box<Run>>,
}

impl<'a, D: HasDriver> HeldRun<'a, D> {
    pub(super) fn outermost(driver: &'a mut D) -> Self {
        Self { driver, slot: None }
    }

    pub(super) fn inside(driver: &'a mut D, slot: &'a mut Box<Run>) -> Self {
        mem::swap(&mut driver.driver().run, slot);
        Self { driver, slot: Some(slot) }
    }
}

impl<D: HasDriver> Deref for HeldRun<'_, D> {
    type Target = D;

    fn deref(&self) -> &D {
        self.driver
    }
}

impl<D: HasDriver> DerefMut for HeldRun<'_, D> {
    fn deref_mut(&mut self) -> &mut D {
        self.driver
    }
}

impl<D: HasDriver> Drop for HeldRun<'_, D> {
    fn drop(&mut self) {
        if let Some(slot) = &mut self.slot {
            mem::swap(&mut self.driver.driver().run, slot);
        }
    }
}

/// What has the driver of a run.
pub(super) trait HasDriver {
    fn driver(&mut self) -> &mut RunDriver;
}

impl HasDriver for RunDriver {
    fn driver(&mut self) -> &mut RunDriver {
        self
    }
}
