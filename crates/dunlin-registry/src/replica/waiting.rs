//! Operations that have been submitted here, and wait for their block and its proof.

use std::collections::HashMap;

use dunlin_identity::method::dunlin::Sha256Hash;
use tokio::time::Instant;

use crate::error::RegistryError;
use crate::writer::{Answer, MAX_QUEUE, Receipt};

/// At most [`MAX_QUEUE`] answers.
#[derive(Default)]
pub(super) struct Waiting {
    /// Not yet in a block: by the hash of the operation's text.
    submitted: HashMap<Sha256Hash, Vec<(Instant, Answer)>>,
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
        answer: Answer,
    ) -> Result<(), RegistryError> {
        let submitted: usize = self.submitted.values().map(Vec::len).sum();
        if submitted + self.committed.len() >= MAX_QUEUE {
            return Err(RegistryError::Busy);
        }
        self.submitted.entry(hash).or_default().push((until, answer));
        Ok(())
    }

    /// The node does not take the operation.
    pub(super) fn refuse(&mut self, hash: &Sha256Hash, error: &RegistryError) {
        for (_, answer) in self.submitted.remove(hash).unwrap_or_default() {
            answer(Err(error.clone()));
        }
    }

    /// The operation is in a block that is on the disk.
    pub(super) fn committed(&mut self, hash: &Sha256Hash, result: &Result<Receipt, RegistryError>) {
        match result {
            Err(error) => self.refuse(hash, error),
            Ok(receipt) => {
                let answers = self.submitted.remove(hash).unwrap_or_default();
                self.committed.extend(answers.into_iter().map(|(until, answer)| (until, *receipt, answer)));
            }
        }
    }

    /// Readers see the log with this size.
    pub(super) fn proven(&mut self, size: u64) {
        for (_, receipt, answer) in self.committed.extract_if(.., |(_, receipt, _)| receipt.number < size) {
            answer(Ok(receipt));
        }
    }

    /// Answers those who have waited for too long. Their operations may still be accepted.
    pub(super) fn expire(&mut self, now: Instant) {
        let late = |why: &str| Err(RegistryError::Node(why.to_owned()));
        self.submitted.retain(|_, answers| {
            for (_, answer) in answers.extract_if(.., |(until, _)| *until <= now) {
                answer(late("no block has the operation yet"));
            }
            !answers.is_empty()
        });
        for (_, _, answer) in self.committed.extract_if(.., |(until, _, _)| *until <= now) {
            answer(late("the operation is in a block that has no proof yet"));
        }
    }
}
