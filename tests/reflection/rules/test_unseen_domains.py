"""Runs of domains that no vocabulary was written on: sentences that must and must not appear."""

from __future__ import annotations

from tests.support.cases import each_case
from tests.support.domains import Domain, check_domain
from tests.support.runs import call, says, user

DOMAINS = [
    Domain(
        "kubernetes",
        [
            user("The pods of service cart restart all the time. Get them running."),
            *call("kubectl", "get pods -n cart", "cart-0 0/1 CrashLoopBackOff 12 41m"),
            *call(
                "kubectl",
                "set image deploy/cart cart=cart:1.9",
                "error: unable to find container named cart",
            ),
            *call("kubectl", "set image deploy/cart web=cart:1.9", "deployment.apps/cart updated"),
            says("The image is updated."),
        ],
        says=("`kubectl(set image", "“error: unable to find container named cart”", "e3", "e5"),
        silent=("succeeded", "fixed"),
    ),
    Domain(
        "one quiet call",
        [
            user("Scale the deployment mail to 3."),
            *call("kubectl_scale", {"deployment": "mail", "replicas": 3}, "deployment scaled"),
            says("Done: it runs with 3 replicas."),
        ],
    ),
    Domain(
        "SQL",
        [
            user("How many orders were late in May?"),
            *call(
                "sql",
                "select count(*) from shipments where late",
                'ERROR: column "late" does not exist',
            ),
            *call(
                "sql",
                "select count(*) from shipments where is_late",
                'ERROR: column "is_late" does not exist',
            ),
            *call(
                "sql",
                "select count(*) from shipments where delayed",
                'ERROR: column "delayed" does not exist',
            ),
            says("I could not determine it."),
        ],
        says=("3 `sql` calls failed", "select count"),
        silent=("search",),
        advice="When a call",
    ),
    Domain(
        "support in German",
        [
            user("Guten Tag, ich möchte meine Bestellung 4711 stornieren, bitte."),
            says("Gerne. Ich sehe nach, ob das noch möglich ist."),
            *call(
                "bestellung_stornieren",
                {"nummer": "4711"},
                {"fehler": None, "error": "Bereits versandt"},
            ),
            says("Ihre Bestellung ist leider schon unterwegs."),
        ],
        says=(
            "Guten Tag, ich möchte meine Bestellung 4711 stornieren",
            "“Bereits versandt”",
            "failed",
        ),
        silent=("refus", "declin", "unable"),
    ),
    Domain(
        "support in French, quiet",
        [
            user("Bonjour, je voudrais changer mon adresse, vous pouvez faire cela pour moi ?"),
            *call("changer_adresse", {"adresse": "3 rue des Lilas"}, {"statut": "enregistré"}),
            says("C'est fait, votre adresse est à jour."),
        ],
    ),
    Domain(
        "support in Portuguese",
        [
            user("Olá, não consigo ver a minha fatura de março."),
            *call("ler_fatura", {"mes": "2024-03"}, {"erro": "serviço indisponível"}),
            *call("ler_fatura", {"mes": "2024-03"}, {"erro": "serviço indisponível"}),
            says("Não foi possível abrir a fatura."),
        ],
        says=("was sent 2 times unchanged and failed each time", "e1, e3"),
        advice="When a call fails, do not send it again unchanged.",
    ),
    Domain(
        "data science notebook",
        [
            user("Fit a model on prices.csv and report the error."),
            *call(
                "run_cell",
                "from sklearn.linear_model import Ridgee",
                "ImportError: cannot import name 'Ridgee'",
            ),
            *call("run_cell", "from sklearn.linear_model import Ridge", "", exit_code=0),
            *call("run_cell", "print(mae)", "0.0"),
            says("The mean absolute error is 0.0."),
        ],
        says=("ImportError: cannot import name 'Ridgee'", "“Ridgee” became “Ridge”"),
        silent=("suspicious", "leak"),
    ),
    Domain(
        "browser use",
        [
            user("Book the 9:15 slot at the swimming pool."),
            *call("goto", {"url": "https://pool.example/slots"}, "Slots\n" + "9:15 free\n" * 30),
            *call("click", {"text": "9:15"}, "Slots\n" + "9:15 free\n" * 30),
            *call("click", {"text": "9:15 free"}, "Slots\n" + "9:15 free\n" * 30),
            says("The slot is booked."),
        ],
        says=("3 calls returned the same text (e1, e3, e5)",),
        silent=("booked",),
    ),
    Domain(
        "e-mail",
        [
            user("Forward the invoice of Lindt AG to accounting."),
            *call("search_mail", {"from": "Lindt AG"}, {"ids": ["m17"]}),
            *call(
                "forward",
                {"id": "m17", "to": "accounting@firm.example"},
                {"ok": False, "error": "mailbox full"},
            ),
            says("I forwarded it."),
        ],
        says=("`forward(id=m17, to=accounting@firm.example)` (e3) failed: “mailbox full”.",),
        silent=("search_mail",),
    ),
    Domain(
        "robotics",
        [
            user("Bring box 7 to dock B."),
            *call("drive", {"to": "shelf 7"}, {"state": "arrived"}),
            {"event_type": "tool_call", "tool_name": "grip", "content": '{"force": 20}'},
            {"event_type": "error_event", "content": "gripper timed out after 8 s"},
        ],
        outcome="error",
        says=(
            "`grip(force=20)` (e3) failed with the error event e4: “gripper timed out after 8 s”.",
        ),
        silent=("last error event", "last tool call before"),
        source="e3",
    ),
    Domain(
        "small talk",
        [
            user("Hi there!"),
            says("Hello! How was your day?"),
            user("Long. I watched a film about penguins."),
            says("Penguins are great. Which film was it?"),
        ],
        outcome="success",
    ),
    Domain(
        "small talk that repeats itself",
        [
            row
            for text in ("I like tea.", "Green tea, mostly.", "In the evening.")
            for row in (user(text), says("That is very interesting. Tell me more."))
        ],
        says=("“That is very interesting” occurs in 3 replies, first in e1.",),
        advice="When writing several replies",
    ),
    Domain(
        "home automation",
        [
            user("Turn the heating down to 17 degrees."),
            *call(
                "set_temperature",
                {"room": "hall", "celsius": 17},
                "connection refused",
                status_code=503,
            ),
            *call("set_temperature", {"room": "hall", "celsius": 17}, {"ok": True}),
            says("Done."),
        ],
        outcome="success",
        says=("The same call (e3) returned no detected error.",),
    ),
    Domain(
        "a log that was cut",
        [
            user("Which test fails in the nightly build?"),
            *call(
                "read_log", {"build": "nightly-3301"}, "ok test_a\nok test_b\n[output truncated]"
            ),
            says("All tests pass."),
        ],
        says=("The response to `read_log(build=nightly-3301)` (e1) says: “[output truncated]”.",),
    ),
]


@each_case("domain", DOMAINS)
def test_unseen_domain(domain: Domain) -> None:
    check_domain(domain)
