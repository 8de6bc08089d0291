//! Operations that have been submitted here, and wait for their block and its proof.

use std::collections::HashMap;

use dunlin_identity::Sha256Hash;
use dunlin_identity::method::dunlin::{Operation, OperationKind};
use tokio::time::Instant;

use crate::operator::error::RegistryError;
use crate::operator::writer::{Answer, MAX_CREATIONS, MAX_QUEUE, Receipt};

/// At most [`MAX_QUEUE`] answers.
#[derive(Default)]
pub(super) struct Waiting {
    /// Not yet in a block: by the hash of the operation's text.
    submitted: HashMap<Sha256Hash, Vec<(Instant, Operation, Answer)>>,
    /// In a block, whose state is not proven yet.
    committed: Vec<(Instant, Receipt, Answer)>,
}

impl Waiting {
    /// # Errors
    /// [`RegistryError::Busy`].
    pub(super) fn add(
        &mut self,
        hash: Sha256Hash,
        until: Instant,
        operation: Operation,
        answer: Answer,
    ) -> Result<(), RegistryError> {
        let submitted: usize = self.submitted.values().map(Vec::len).sum();
        let is_creation = |operation: &Operation| operation.kind() == OperationKind::Create;
        let creations = self.submitted.values().flatten().filter(|(_, waiting, _)| is_creation(waiting));
        // Strangers' creations leave places for the holders of DIDs.
        let is_full = submitted + self.committed.len() >= MAX_QUEUE
            || (is_creation(&operation) && creations.count() >= MAX_CREATIONS);
        if is_full {
            return Err(RegistryError::Busy);
        }
        self.submitted.entry(hash).or_default().push((until, operation, answer));
        Ok(())
    }

    /// The node does not take the operation.
    pub(super) fn refuse(&mut self, hash: &Sha256Hash, error: &RegistryError) {
        for (_, _, answer) in self.submitted.remove(hash).unwrap_or_default() {
            answer(Err(error.clone()));
        }
    }

    /// The operation is in a block that is on the disk.
    pub(super) fn committed(&mut self, hash: &Sha256Hash, result: &Result<Receipt, RegistryError>) {
        match result {
            Err(error) => self.refuse(hash, error),
            Ok(receipt) => {
                let answers = self.submitted.remove(hash).unwrap_or_default();
                self.committed
                    .extend(answers.into_iter().map(|(until, _, answer)| (until, *receipt, answer)));
            }
        }
    }

    /// Readers see the log with this size.
    pub(super) fn proven(&mut self, size: u64) {
        for (_, receipt, answer) in self.committed.extract_if(.., |(_, receipt, _)| receipt.number < size) {
            answer(Ok(receipt));
        }
    }

    /// Answers those who have waited for too long for a proof. Returns the operations that have waited for
    /// too long for a block, and how to answer. They may still be accepted.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(Operation, Answer)> {
        let mut expired = Vec::new();
        self.submitted.retain(|_, answers| {
            let late = answers.extract_if(.., |(until, _, _)| *until <= now);
            expired.extend(late.map(|(_, operation, answer)| (operation, answer)));
            !answers.is_empty()
        });
        for (_, _, answer) in self.committed.extract_if(.., |(until, _, _)| *until <= now) {
            answer(Err(RegistryError::Node("the operation is in a block that has no proof yet".to_owned())));
        }
        expired
    }
}
