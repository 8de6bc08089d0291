//! Permanent knowledge, which outlives the program: in a file, and in Redis, where other gateways have it,
//! too.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use dunlin::crypto::CryptoProvider;
use dunlin_identity::handshake::{Known, KnownStore};
use dunlin_identity::knowledge::{Knowledge, Learnt, RECORD_LEN, Record};
use dunlin_setup::known::{KnownFile, LogMarks, SYNC_TIME};
use dunlin_setup::learned::{self, LearnedState, Notice};
use dunlin_store::cache::CacheFault;
use dunlin_store::{MAX_KEPT_MESSAGE, MAX_SENT, SharedLog};
use prometheus_client::metrics::counter::Counter;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::sleep;

use crate::clock::timer;
use crate::config::{Fault, FileField, SharedConfig};

/// How often Redis gets the mark of a log, which grows with every operation of any DID. Redis keeps them all.
const SHARED_LOG_PAUSE: Duration = Duration::from_secs(3600);

const _: () = assert!(RECORD_LEN <= MAX_KEPT_MESSAGE, "a record is a message");

/// The permanent knowledge, in the Redis that gateways share.
#[derive(Debug)]
struct KnownShared {
    log: SharedLog,
    logs: LogMarks,
    /// Records that Redis does not have yet.
    waiting: Mutex<Vec<Record>>,
    /// The knowledge in Redis, until everything in it was read once.
    first: Mutex<Option<Knowledge>>,
}

impl KnownShared {
    fn open(shared: &SharedConfig, provider: &Arc<CryptoProvider>) -> Result<Self, Fault> {
        let store = &shared.store;
        let key = &shared.key;
        let log = SharedLog::open_kept(&store.value, "known", &key.value, provider.clone());
        let log = log.map_err(|error| shared.fault(&error))?;
        let logs = LogMarks::new(SHARED_LOG_PAUSE);
        Ok(Self { log, logs, waiting: Mutex::default(), first: Mutex::new(Some(Knowledge::default())) })
    }

    /// Tells the other gateways what this one has learnt, and learns from them. After a fault, the unsent
    /// records wait for the next call.
    fn exchange(&self, known: &Known) -> Result<(), CacheFault> {
        self.keep(self.logs.due(timer().into_std()));
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut sent = self.waiting();
            let rest = sent.split_off(sent.len().min(MAX_SENT));
            let messages: Vec<_> = sent.iter().map(|record| record.to_bytes().to_vec()).collect();
            let received = self.log.exchange(&messages).inspect_err(|_| {
                self.keep(sent.into_iter().chain(rest.iter().copied()));
            })?;
            let records: Vec<_> = received.iter().filter_map(|message| Record::read(message)).collect();
            if let Some(theirs) = &mut *first {
                for Record { subject, mark } in &records {
                    theirs.learn(*subject, *mark);
                }
            }
            known.merge(records);
            let is_done = received.is_empty() && rest.is_empty();
            self.keep(rest);
            if !is_done {
                continue;
            }
            match first.take() {
                None => return Ok(()),
                // Redis may have lost records that this side has in a file.
                Some(theirs) => self.keep(
                    known
                        .records()
                        .into_iter()
                        .filter(|record| theirs.compare(&record.subject, &record.mark) == Learnt::Later),
                ),
            }
        }
    }

    fn waiting(&self) -> Vec<Record> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, records: impl IntoIterator<Item = Record>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(records);
    }
}

impl KnownStore for KnownShared {
    fn add(&self, record: &Record) {
        self.keep(self.logs.take(record, timer().into_std()));
    }
}

/// The permanent knowledge, and its stores.
#[derive(Debug)]
struct KnownPlaces {
    known: Arc<Known>,
    path: Option<FileField>,
    file: Option<Arc<KnownFile>>,
    shared: Option<Arc<KnownShared>>,
}

impl KnownPlaces {
    /// Reads the knowledge. It blocks: for Redis at most some seconds, without which the program begins, too.
    fn open(
        provider: &Arc<CryptoProvider>,
        path: Option<&FileField>,
        shared: Option<&SharedConfig>,
    ) -> Result<Self, Fault> {
        let (file, knowledge) = path.map(KnownFile::open).transpose()?.unzip();
        let shared = shared.map(|shared| KnownShared::open(shared, provider).map(Arc::new)).transpose()?;
        let mut known = Known::new(knowledge.unwrap_or_default());
        if let Some(file) = &file {
            known = known.with_store(file.clone());
        }
        if let Some(shared) = &shared {
            known = known.with_store(shared.clone());
        }
        let places = Self { known: Arc::new(known), path: path.cloned(), file, shared };
        // The task that follows reports faults.
        let _ = places.exchange();
        Ok(places)
    }

    /// Whether a reload may keep these places.
    fn is_at(&self, path: Option<&FileField>) -> bool {
        self.path.as_ref().map(|path| &path.value) == path.map(|path| &path.value)
    }

    /// Whether there is something to do in [`follow`].
    const fn outlive_the_program(&self) -> bool {
        self.file.is_some() || self.shared.is_some()
    }

    /// The last exchange.
    fn close(&self) {
        if let Some(shared) = &self.shared {
            shared.keep(shared.logs.all());
        }
        // The task that follows has reported faults.
        let _ = self.exchange();
        if let Some(file) = &self.file {
            file.close();
        }
    }

    /// Writes new records to the disk, and exchanges them with other gateways.
    fn exchange(&self) -> Result<(), CacheFault> {
        let exchanged = self.shared.as_ref().map_or(Ok(()), |shared| shared.exchange(&self.known));
        if let Some(file) = &self.file {
            file.sync();
        }
        exchanged
    }
}

/// Exchanges the knowledge every second. `told` is called with whether Redis has answered, if there is one.
async fn follow(places: Arc<KnownPlaces>, told: impl Fn(bool)) {
    let mut is_down = false;
    loop {
        sleep(SYNC_TIME).await;
        let exchanging = places.clone();
        // It fails only if the runtime ends.
        let Ok(exchanged) = spawn_blocking(move || exchanging.exchange()).await else { return };
        if places.shared.is_none() {
            continue;
        }
        told(exchanged.is_ok());
        match &exchanged {
            Ok(()) if is_down => tracing::info!("what has ended is shared again"),
            Err(fault) if !is_down => {
                tracing::error!("what has ended is not shared: {fault}; each gateway knows its own");
            }
            _ => {}
        }
        is_down = exchanged.is_err();
    }
}

/// A program's knowledge, and the stores of its permanent part.
#[derive(Default)]
pub(crate) struct Learned {
    /// The knowledge.
    pub(crate) state: LearnedState,
    places: OnceLock<Arc<KnownPlaces>>,
    /// The task that exchanges the permanent knowledge with its stores.
    following: Mutex<Option<AbortHandle>>,
}

impl Learned {
    /// Counts the proofs that count because a registry does not answer. `self` must not have been used yet.
    pub(crate) fn count(&mut self, outage_proofs: Counter) {
        self.state = LearnedState::new(Arc::new(move |notice| {
            if matches!(notice, Notice::OldProof(_)) {
                outage_proofs.inc();
            }
            learned::log(notice);
        }));
    }

    /// Reads the permanent knowledge from this file, and from the Redis that gateways share. A reload keeps
    /// the file.
    pub(crate) fn open(
        &self,
        provider: &Arc<CryptoProvider>,
        file: Option<&FileField>,
        shared: Option<&SharedConfig>,
    ) -> Result<(), Fault> {
        let Some(places) = self.places.get() else {
            let opened = KnownPlaces::open(provider, file, shared)?;
            self.state.begin_with(opened.known.clone());
            self.places.get_or_init(|| Arc::new(opened));
            return Ok(());
        };
        if places.is_at(file) {
            return Ok(());
        }
        let what = "a reload cannot change the table [known]";
        let advice = "restart the program, or restore it";
        Err(file.map_or_else(|| Fault::elsewhere(what, advice), |file| file.place.fault(what, advice)))
    }

    /// Exchanges the permanent knowledge with its stores from now on. `told` is called with whether Redis has
    /// answered.
    pub(crate) fn follow(&self, told: impl Fn(bool) + Send + 'static) {
        let mut following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) =
            self.places.get().filter(|places| places.outlive_the_program() && following.is_none())
        {
            *following = Some(tokio::spawn(follow(places.clone(), told)).abort_handle());
        }
    }

    /// Ends the exchange, when nothing is learnt any more.
    pub(crate) async fn close(&self) {
        let following = self.following.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(following), Some(places)) = (following, self.places.get().cloned()) {
            following.abort();
            // It fails only if the runtime ends.
            let _ = spawn_blocking(move || places.close()).await;
        }
    }
}
