from __future__ import annotations

import pytest
import redis
import trustme

from tests.redis_server import RedisProcess, TlsFiles, redis_binaries


def test_a_killed_server_keeps_what_its_log_holds(start_redis):
    server = start_redis(options={"appendonly": "yes", "appendfsync": "always"})
    with server.client() as client:
        client.set("zone", "eu-1a")
    port = server.port
    server.kill()
    with server.client() as client, pytest.raises(redis.ConnectionError):
        client.get("zone")

    server.start()

    assert server.port == port
    with server.client() as client:
        assert client.get("zone") == b"eu-1a"


def test_a_paused_server_answers_again_after_resume(start_redis):
    server = start_redis()
    server.pause()
    with redis.Redis.from_url(server.url, socket_timeout=0.05) as client:
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
    with server.client() as client:
        assert client.ping()


def test_one_server_listens_on_tcp_and_on_a_unix_socket(start_redis):
    server = start_redis(unix_socket=True)
    with server.client() as tcp, redis.Redis.from_url(server.socket_url) as local:
        tcp.set("a", "1")
        assert local.get("a") == b"1"


@pytest.mark.parametrize("turn", ["first", "second"])
def test_the_shared_server_is_emptied_for_each_test(redis_server, redis_url, turn):
    with redis_server.client() as client:
        assert client.dbsize() == 0
        client.set("left behind by", turn)


@pytest.fixture
def tls_files(tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return TlsFiles(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem")


def test_a_server_with_tls_answers_only_over_tls(start_redis, tls_files):
    server = start_redis(tls=tls_files)
    with server.client() as client:
        assert client.ping()
    server.tls = None
    with server.client() as plain, pytest.raises(redis.ConnectionError):
        plain.ping()


def test_a_server_that_cannot_start_says_why(tmp_path, redis_binary):
    server = RedisProcess(tmp_path / "r", binary=redis_binary, options={"appendfsync": "never"})
    with pytest.raises(RuntimeError, match="ended at its start"):
        server.start()


def test_every_version_found_runs(tmp_path, redis_binary):
    assert redis_binary in redis_binaries().values()
    for version, binary in redis_binaries().items():
        with RedisProcess(tmp_path / str(version), binary=binary) as server:
            with server.client() as client:
                running = client.info("server")["redis_version"]
            assert running == ".".join(map(str, version))
