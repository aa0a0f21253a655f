use super::super::options::Mode;
use super::*;

fn attach() -> Request {
    Request::Attach(Box::new(Attach {
        label: "/w".to_owned(),
        attribution: Attribution::Owner {
            name: Some("A".to_owned()),
            process: true,
        },
        policy: Policy {
            mode: Mode::Observe,
            ..Policy::default()
        },
        multi_user: true,
        read_only: false,
        noatime: false,
        strictatime: false,
        only_ids: None,
        namespace_of: Some(7),
        linger: Some(3),
        rules: AttachRules::default(),
    }))
}

#[test]
fn every_request_survives_its_line() {
    let requests = [
        Request::Hello {
            program: "0".to_owned(),
        },
        attach(),
        Request::Join {
            owner: None,
            linger: None,
        },
        Request::Join {
            owner: Some("Ab".to_owned()),
            linger: Some(4),
        },
        Request::Status,
        Request::Detach { mount: 4 },
        Request::Refusals,
        Request::Flush {
            ended: Some(3),
            record: false,
        },
        Request::Flush {
            ended: None,
            record: true,
        },
        Request::Allowances,
        Request::Disallow {
            path: "f".to_owned(),
            owner: Some("A/b".to_owned()),
        },
        Request::Leave,
        Request::Wait { mount: 1 },
    ];
    for request in requests {
        let line = format(&request).unwrap();
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(parse_request(&line).unwrap(), request);
    }
}

#[test]
fn every_reply_survives_its_line() {
    let replies = [
        Reply::Hello {
            guard: "1-2-3".to_owned(),
            root: "/w".to_owned(),
            pid: 1,
            program: "0".to_owned(),
        },
        Reply::Attached {
            mount: 1,
            owner: None,
            data: DataPath::Passthrough,
        },
        Reply::Joined {
            owner: "A/B".to_owned(),
        },
        Reply::Status(Box::new(Status {
            mounts: vec![MountStatus::default()],
            ..Status::default()
        })),
        Reply::Allowances {
            waiting: vec![Allowance::default()],
        },
        Reply::Disallowed { count: 2 },
        Reply::Done,
        Reply::Refusal(Box::new(Refusal {
            line: "no".to_owned(),
            below: true,
            event: Some(serde_json::json!({ "code": "x" })),
            ..Refusal::default()
        })),
        Reply::Dropped { count: 2 },
        Reply::Error(Failure::new(Code::Forbidden, "no").with_hint("ask")),
    ];
    for reply in replies {
        assert_eq!(parse_reply(&format(&reply).unwrap()).unwrap(), reply);
    }
}

#[test]
fn unknown_fields_are_ignored_and_missing_ones_have_defaults() {
    let line = br#"{"v":1,"op":"attach","label":"/w","attribution":{"by":"session"},"colour":"red"}"#;
    let Request::Attach(attach) = parse_request(line).unwrap() else {
        panic!("not an attach")
    };
    assert_eq!(attach.policy, Policy::default());
    assert_eq!(
        parse_request(br#"{"v":1,"op":"status","x":[1,{}]}"#).unwrap(),
        Request::Status
    );
}

#[test]
fn what_is_no_request_is_told_apart() {
    let code = |line: &[u8]| parse_request(line).unwrap_err().code;
    assert_eq!(code(b""), Code::Malformed);
    assert_eq!(code(b"hello"), Code::Malformed);
    assert_eq!(code(b"[]"), Code::Malformed);
    assert_eq!(code(br#"{"op":"status"}"#), Code::Malformed);
    assert_eq!(code(br#"{"v":"1","op":"status"}"#), Code::Malformed);
    assert_eq!(code(br#"{"v":2,"op":"status"}"#), Code::Unsupported);
    assert_eq!(code(br#"{"v":1}"#), Code::Malformed);
    assert_eq!(code(br#"{"v":1,"op":"explode"}"#), Code::Unsupported);
    assert_eq!(code(br#"{"v":1,"op":"detach"}"#), Code::Malformed);
    assert_eq!(
        code(br#"{"v":1,"op":"attach","label":"/w","attribution":{"by":"moon"}}"#),
        Code::Malformed
    );
    assert_eq!(code(br#"{"v":1,"op":"join","owner":"a b"}"#), Code::Malformed);
    assert_eq!(code(b"\xff\xfe"), Code::Malformed);
}

#[test]
fn owner_names() {
    for good in ["A", "agent-1", "x@host:1", "été", "a.b_c+d"] {
        assert_eq!(check_owner_name(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "/",
        "a/b",
        "a b",
        "a\n",
        "a\0",
        &"x".repeat(129),
        "session-7",
        "run-7.9",
        "user-0",
    ] {
        assert!(check_owner_name(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn an_unknown_error_code_is_still_an_error() {
    let reply = parse_reply(br#"{"v":1,"is":"error","code":"tired","message":"m"}"#).unwrap();
    assert_eq!(reply, Reply::Error(Failure::new(Code::Other, "m")));
}

#[test]
fn a_message_that_is_too_long_is_not_sent() {
    let reply = Reply::Refusal(Box::new(Refusal {
        line: "x".repeat(LINE_LIMIT),
        ..Refusal::default()
    }));
    assert_eq!(format(&reply).unwrap_err().code, Code::Failed);
}
