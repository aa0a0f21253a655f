//! The server over real sockets, before a host that serves nothing.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::lifecycle::Lifecycle;
use super::protocol::LINE_LIMIT;
use super::*;
use crate::fs::{Activity, Asker};
use crate::guard::OwnerId;
use crate::sync::Mutex;
use crate::sys::consts;

/// Mounts end when told to; this process is whoever it is told to be.
#[derive(Default)]
struct Fake {
    caller: AtomicU32,
    served: Mutex<Vec<Serve>>,
    sinks: Mutex<Vec<(OwnerId, Arc<Sink>)>>,
    end: Arc<AtomicBool>,
    dismissed: AtomicBool,
    allowed: Mutex<Vec<(String, Option<OwnerId>, bool)>>,
}

struct FakeServing(Arc<AtomicBool>);

impl Serving for FakeServing {
    fn data_path(&self) -> DataPath {
        DataPath::Passthrough
    }

    fn wait(self: Box<Self>) -> io::Result<()> {
        while !self.0.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Host for Fake {
    fn owner_of(&self, _pid: u32) -> io::Result<Option<OwnerId>> {
        Ok(Some(OwnerId(self.caller.load(Ordering::Acquire))).filter(|owner| *owner != OwnerId::NOBODY))
    }

    fn enrol(&self, above: Option<OwnerId>, name: Option<&str>, process: Option<u32>) -> Result<OwnerId, Failure> {
        let number = above.map_or(0, |above| above.0 * 10) + if name.is_some() { 1 } else { 2 };
        if process.is_some() {
            self.caller.store(number, Ordering::Release);
        }
        Ok(OwnerId(number))
    }

    fn dismiss(&self, _process: u32) {
        self.dismissed.store(true, Ordering::Release);
    }

    fn name_of(&self, owner: OwnerId) -> String {
        format!("o{}", owner.0)
    }

    fn serve(&self, mount: Serve, _fuse: OwnedFd) -> io::Result<Box<dyn Serving>> {
        if mount.label == "/bad" {
            return Err(io::Error::from_raw_os_error(consts::EPROTO));
        }
        self.served.lock().push(mount);
        Ok(Box::new(FakeServing(Arc::clone(&self.end))))
    }

    fn status(&self) -> (Vec<OwnerStatus>, Vec<(String, u64)>) {
        (Vec::new(), vec![("refusals".to_owned(), 3)])
    }

    fn rules_problem(&self) -> Option<String> {
        None
    }

    fn rules(&self, _mount: Option<u64>, path: Option<&str>, _matches: bool) -> RulesReport {
        RulesReport {
            problem: path.map(str::to_owned),
            ..RulesReport::default()
        }
    }

    fn allows_itself(&self, mount: u64) -> bool {
        mount == 7
    }

    fn allow(&self, path: &str, owner: Option<OwnerId>, _seconds: u64, by_owner: bool) -> Result<(), Failure> {
        self.allowed.lock().push((path.to_owned(), owner, by_owner));
        Ok(())
    }

    fn allowances(&self) -> Vec<Allowance> {
        let waiting = self.allowed.lock().clone();
        let words = waiting.iter().map(|(path, owner, by_owner)| Allowance {
            path: path.clone(),
            owner: owner.map(|owner| self.name_of(owner)),
            seconds: 1,
            by_owner: *by_owner,
        });
        words.collect()
    }

    fn disallow(&self, path: &str, which: &dyn Fn(&Allowance) -> bool) -> usize {
        let waiting = self.allowances();
        waiting.iter().filter(|one| one.path == path && which(one)).count()
    }

    fn write_record(&self) {}

    fn find_owner(&self, name: &str) -> Option<OwnerId> {
        name.strip_prefix('o')?.split('/').next()?.parse().ok().map(OwnerId)
    }

    fn subscribe(&self, owner: OwnerId, sink: Sink) -> Box<dyn Send> {
        self.sinks.lock().push((owner, Arc::new(sink)));
        Box::new(())
    }

    fn owner_on_mount(&self, mount: u64, _asker: &Asker) -> Option<OwnerId> {
        (mount == 5).then_some(OwnerId(55))
    }

    fn why(
        &self,
        request: &WhyRequest,
        whose: Whose,
        _asker: Asker,
    ) -> Result<Result<WhyReply, std::path::PathBuf>, Failure> {
        if request.path.is_empty() {
            return Ok(Err("../x".into()));
        }
        Ok(Ok(WhyReply {
            own: Some(format!("{whose:?}")),
            ..WhyReply::default()
        }))
    }

    fn activity(&self, since: u64, only: Option<OwnerId>) -> Activity {
        Activity {
            sequence: since + u64::from(only.is_some()),
            ..Activity::default()
        }
    }

    fn flush(&self) {
        for (owner, sink) in self.sinks.lock().iter() {
            sink(Refusal {
                line: format!("refused for {}", owner.0),
                ..Refusal::default()
            });
        }
    }

    fn shutdown(&self) {}
}

struct Setting {
    host: Arc<Fake>,
    life: Arc<Lifecycle>,
    path: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl Setting {
    fn new(uid: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let host = Arc::new(Fake::default());
        let life = Arc::new(Lifecycle::default());
        let plain: Arc<dyn Host> = Arc::<Fake>::clone(&host);
        let server = Server::new(plain, Arc::clone(&life), "1-2-3".to_owned(), "/w".to_owned(), uid);
        Arc::new(server).listen(UnixListener::bind(&path).unwrap()).unwrap();
        Self {
            host,
            life,
            path,
            _dir: dir,
        }
    }

    fn own() -> Self {
        Self::new(crate::sys::geteuid())
    }

    fn client(&self) -> Client {
        Client::over(UnixStream::connect(&self.path).unwrap()).unwrap()
    }

    fn guarded(self, owner: u32) -> Self {
        self.host.caller.store(owner, Ordering::Release);
        self
    }
}

fn hello(client: &mut Client) -> Reply {
    client.ask(&Request::Hello { program: String::new() }, None).unwrap()
}

fn attach(label: &str) -> Attach {
    Attach {
        label: label.to_owned(),
        attribution: Attribution::Owner {
            name: Some("A".to_owned()),
            process: true,
        },
        policy: Policy::default(),
        multi_user: false,
        read_only: false,
        noatime: false,
        strictatime: false,
        only_ids: None,
        namespace_of: None,
        linger: None,
        rules: AttachRules::default(),
    }
}

fn null() -> File {
    File::open("/dev/null").unwrap()
}

fn code(result: Result<impl std::fmt::Debug, ClientError>) -> Code {
    match result {
        Err(ClientError::Refused(failure)) => failure.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_from_hello_to_the_end() {
    let setting = Setting::own();
    let mut client = setting.client();
    assert!(matches!(hello(&mut client), Reply::Hello { guard, .. } if guard == "1-2-3"));
    let attached = client.attach(attach("/w"), null().as_fd()).unwrap();
    assert_eq!(
        (attached.owner.as_deref(), attached.data),
        (Some("o1"), DataPath::Passthrough)
    );
    assert_eq!(setting.host.served.lock()[0].attribution, ServeFor::Owner(OwnerId(1)));
    client.follow_refusals().unwrap();
    let status = setting.client().status().unwrap();
    assert_eq!(
        (status.mounts.len(), status.mounts[0].owner.as_str(), status.linger),
        (1, "o1", 600)
    );
    assert_eq!(status.counts["refusals"], 3);
    setting.host.end.store(true, Ordering::Release);
    client.flush(Some(attached.mount)).unwrap();
    let refusal = client.next_refusal().expect("a refusal");
    assert_eq!((refusal.line.as_str(), refusal.count), ("refused for 1", 1));
    assert!(setting.client().status().unwrap().mounts.is_empty());
    client.leave().unwrap();
    assert!(setting.host.dismissed.load(Ordering::Acquire));
}

#[test]
fn a_guarded_process_may_only_go_below_its_own_owner() {
    let setting = Setting::own().guarded(7);
    let mut client = setting.client();
    hello(&mut client);
    let refused = client.attach(attach("/w"), null().as_fd());
    assert_eq!(code(refused), Code::Forbidden);
    assert!(setting.host.served.lock().is_empty());
    assert_eq!(client.join(Some("A".to_owned()), None).unwrap(), "o71");
}

#[test]
fn a_guarded_process_may_not_end_a_mount_that_is_not_its_owners() {
    let setting = Setting::own();
    let mut client = setting.client();
    let attached = client.attach(attach("/absent"), null().as_fd()).unwrap();
    let setting = setting.guarded(9);
    assert_eq!(code(setting.client().detach(attached.mount)), Code::Forbidden);
    assert_eq!(code(setting.client().detach(99)), Code::Missing);
}

#[test]
fn only_the_guards_user_is_heard() {
    let setting = Setting::new(crate::sys::geteuid() + 1);
    if crate::sys::geteuid() == 0 {
        assert!(setting.client().status().is_ok(), "root is always heard");
    } else {
        assert_eq!(code(setting.client().status()), Code::Forbidden);
    }
}

#[test]
fn nonsense_gets_an_error_and_the_conversation_goes_on() {
    let setting = Setting::own();
    let mut socket = UnixStream::connect(&setting.path).unwrap();
    socket.write_all(b"nonsense\n{\"v\":1,\"op\":\"explode\"}\n{\"v\":1,\"op\":\"attach\",\"label\":\"/w\",\"attribution\":{\"by\":\"user\"}}\n").unwrap();
    let mut lines = Lines::new(socket.try_clone().unwrap());
    let mut next = || super::protocol::parse_reply(&lines.next_line().unwrap().unwrap()).unwrap();
    for expected in [Code::Malformed, Code::Unsupported, Code::Malformed] {
        let reply = next();
        assert!(
            matches!(&reply, Reply::Error(failure) if failure.code == expected),
            "{reply:?}"
        );
    }
    socket.write_all(b"{\"v\":1,\"op\":\"status\"}\n").unwrap();
    assert!(matches!(next(), Reply::Status(_)));
}

#[test]
fn an_endless_line_ends_the_conversation() {
    let setting = Setting::own();
    let mut socket = UnixStream::connect(&setting.path).unwrap();
    let mut sent = 0;
    while sent <= 4 * LINE_LIMIT {
        match socket.write(&[b'x'; 4096]) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    let mut lines = Lines::new(socket);
    assert!(!matches!(lines.next_line(), Ok(Some(_))));
}

#[test]
fn a_mount_that_cannot_be_served_is_told() {
    let setting = Setting::own();
    let mut client = setting.client();
    let mut wanted = attach("/bad");
    wanted.attribution = Attribution::By(OwnerBy::User);
    assert_eq!(code(client.attach(wanted.clone(), null().as_fd())), Code::Failed);
    wanted.label = "/w".to_owned();
    wanted.namespace_of = Some(1);
    assert_eq!(code(client.attach(wanted, null().as_fd())), Code::Forbidden);
    assert!(setting.life.mounts().is_empty());
}

#[test]
fn hello_is_refused_when_the_guard_is_ending() {
    let setting = Setting::own();
    setting.life.ask_end();
    setting.life.wait_end();
    let refused = setting.client().ask(&Request::Hello { program: String::new() }, None);
    assert_eq!(code(refused), Code::Ending);
}

// semantics: W3
#[test]
fn a_guarded_process_may_ask_for_its_own_view_only() {
    let ask = |owner: Option<&str>, mount| WhyRequest {
        path: vec![PathText::Text("f".to_owned())],
        owner: owner.map(str::to_owned),
        operation: Default::default(),
        mount,
        difference: false,
    };
    let whose = |setting: &Setting, request| setting.client().why(request).unwrap().unwrap().own.unwrap();
    let setting = Setting::own();
    assert_eq!(whose(&setting, ask(None, None)), format!("{:?}", Whose::All));
    assert_eq!(
        whose(&setting, ask(Some("o3"), None)),
        format!("{:?}", Whose::Named(OwnerId(3)))
    );
    assert_eq!(
        whose(&setting, ask(None, Some(5))),
        format!("{:?}", Whose::Own(OwnerId(55)))
    );
    assert_eq!(code(setting.client().why(ask(Some("stranger"), None))), Code::Missing);
    let setting = setting.guarded(7);
    let own = format!("{:?}", Whose::Own(OwnerId(7)));
    assert_eq!(whose(&setting, ask(None, Some(5))), own);
    assert_eq!(whose(&setting, ask(Some("o7"), None)), own);
    assert_eq!(code(setting.client().why(ask(Some("o3"), None))), Code::Forbidden);
    assert_eq!(
        code(setting.client().why(ask(Some("stranger"), None))),
        Code::Forbidden,
        "whether another owner exists is not told either"
    );
    assert_eq!(setting.client().activity(4).unwrap().sequence, 5);
    let mut nowhere = ask(None, None);
    nowhere.path.clear();
    assert_eq!(
        setting.client().why(nowhere).unwrap().unwrap_err(),
        std::path::Path::new("../x")
    );
}

// semantics: L17
#[test]
fn who_may_let_which_changes_through() {
    let setting = Setting::own();
    let mut client = setting.client();
    let allow = |client: &mut Client, owner: Option<&str>, mount: Option<u64>| {
        client.allow("f".to_owned(), owner.map(str::to_owned), 60, mount)
    };
    // From outside, for anybody or for one.
    assert_eq!(allow(&mut client, None, None).unwrap(), None);
    assert_eq!(allow(&mut client, Some("o3"), None).unwrap().as_deref(), Some("o3"));
    assert!(
        matches!(allow(&mut client, Some("nobody"), None), Err(ClientError::Refused(failure)) if failure.code == Code::Missing)
    );
    // From inside, only on a mount that lets owners, and only for themselves and those below.
    setting.host.caller.store(3, Ordering::Release);
    for (owner, mount) in [
        (None, None),
        (None, Some(6)),
        (Some("o3"), Some(6)),
        (Some("o4"), Some(7)),
        (Some("o33"), Some(7)),
    ] {
        let refused = allow(&mut client, owner, mount);
        assert!(
            matches!(&refused, Err(ClientError::Refused(failure)) if failure.code == Code::Forbidden),
            "{owner:?} {mount:?}: {refused:?}"
        );
    }
    assert_eq!(allow(&mut client, None, Some(7)).unwrap().as_deref(), Some("o3"));
    assert_eq!(
        allow(&mut client, Some("o3/b"), Some(7)).unwrap().as_deref(),
        Some("o3")
    );
    let own = ("f".to_owned(), Some(OwnerId(3)), true);
    let outside = ("f".to_owned(), None, false);
    let allowed = setting.host.allowed.lock().clone();
    assert_eq!(allowed.first(), Some(&outside));
    assert_eq!(allowed.len(), 4);
    assert_eq!(&allowed[2..], [own.clone(), own]);
}

#[test]
fn one_process_does_not_take_the_room_of_all() {
    let setting = Setting::own();
    let mut all: Vec<_> = (0..64).map(|_| setting.client()).collect();
    for client in &mut all {
        assert!(matches!(hello(client), Reply::Hello { .. }));
    }
    let hello = || Request::Hello { program: String::new() };
    let refused = setting.client().ask(&hello(), None);
    let why = format!("{refused:?}");
    assert!(why.contains("too many conversations"), "{why}");
    // One that has ended makes room.
    all.pop();
    let begun = std::time::Instant::now();
    while setting.client().ask(&hello(), None).is_err() {
        assert!(begun.elapsed().as_secs() < 20, "no room again");
        std::thread::yield_now();
    }
}
