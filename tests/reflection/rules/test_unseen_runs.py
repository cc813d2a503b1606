"""More runs of unseen domains: whose error it was, where a value comes from, what decided."""

from __future__ import annotations

from tests.support.cases import each_case
from tests.support.domains import Domain, check_domain
from tests.support.runs import call, says, user

RUNS = [
    Domain(
        "Terraform: an object in use is no rejected input",
        [
            user("Apply the plan for the staging network, but leave production alone."),
            *call("terraform", "workspace select staging", "Switched to workspace staging."),
            *call("terraform", "plan -out=net.plan", "Plan: 3 to add, 0 to change, 1 to destroy."),
            *call(
                "terraform",
                "apply net.plan",
                "aws_route.a: Creating...\nError: deleting subnet (subnet-0a91): the subnet has"
                " dependencies and cannot be deleted.",
                metadata={"exit_code": 1},
            ),
            says("The staging network is up to date now."),
        ],
        says=("`terraform(apply net.plan)` (e5) failed: “Error: deleting subnet (subnet-0a91)",),
        silent=("format", "up to date"),
        advice="",
        source="e5",
    ),
    Domain(
        "SQL: the same statement after a lock",
        [
            user("Add a column archived_at to the table invoices."),
            *call(
                "run_sql",
                {"query": "alter table invoices add column archived_at timestamptz"},
                "ERROR:  canceling statement due to lock timeout",
            ),
            *call(
                "run_sql",
                {"query": "select pid, state from pg_stat_activity"},
                "812 | idle in transaction",
            ),
            *call("run_sql", {"query": "select pg_terminate_backend(812)"}, "t"),
            *call(
                "run_sql",
                {"query": "alter table invoices add column archived_at timestamptz"},
                "ALTER TABLE",
            ),
            says("I added the column."),
        ],
        outcome="success",
        says=("lock timeout”. The same call (e7) returned no detected error.",),
        silent=("next call",),
        advice="",
    ),
    Domain(
        "insurance in German: two digits were swapped",
        [
            user("Ich möchte den Schaden an meinem Fahrrad melden, Vertrag HV-20931."),
            says("Das tut mir leid. Wann ist der Schaden entstanden?"),
            user("Am 3. März, das Schloss wurde aufgebrochen."),
            *call(
                "schaden_anlegen",
                {"vertrag": "HV-20913", "datum": "2024-03-03", "art": "Diebstahl"},
                {"ok": False, "error": "Vertrag HV-20913 existiert nicht"},
            ),
            *call(
                "schaden_anlegen",
                {"vertrag": "HV-20913", "datum": "2024-03-03", "art": "Einbruch"},
                {"ok": False, "error": "Vertrag HV-20913 existiert nicht"},
            ),
            says("Leider kann ich den Schaden gerade nicht anlegen."),
            user("Die Nummer ist doch HV-20931, das stimmt so nicht."),
        ],
        says=("No event before e3 contains the argument value `vertrag=HV-20913`.",),
        silent=("datum=2024-03-03`.", "or `datum"),
        advice="Before a call that needs an ID",
    ),
    Domain(
        "telephone support in French: nothing but words",
        [
            user("Bonjour, ma ligne est coupée depuis hier, pouvez-vous la remettre en service ?"),
            says("Je regarde tout de suite. Quel est votre numéro de client ?"),
            user("C'est le 88213."),
            *call("etat_ligne", {"client": "88213"}, {"etat": "suspendue", "montant": "41,20 €"}),
            says("La ligne est suspendue. Souhaitez-vous payer les 41,20 € maintenant ?"),
            user("Mais j'ai payé lundi, l'argent est parti !"),
            *call("escalate", {"reason": "client dit avoir payé lundi"}, "ok"),
            says("Je transmets votre dossier à un collègue."),
        ],
    ),
    Domain(
        "hotel in Portuguese: an ID from nowhere",
        [
            user("Boa tarde, quero cancelar a reserva do quarto 12 para o dia 4 de maio."),
            *call("listar_reservas", {"quarto": 12, "dia": "2024-05-04"}, {"reservas": []}),
            *call(
                "cancelar_reserva",
                {"id": "R-5512", "referencia": "R-5512"},
                {"erro": "reserva não encontrada", "ok": False},
            ),
            says("A sua reserva foi cancelada."),
        ],
        says=("“reserva não encontrada”", "contains the argument value `id=R-5512`."),
        silent=("referencia=R-5512`.", "cancelada"),
        advice="Before a call that needs an ID",
        source="e3",
    ),
    Domain(
        "notebook: an exception in a cell is a failed call, the run went on",
        [
            user("Plot sales by region from sales.parquet."),
            {
                "event_type": "tool_call",
                "tool_name": "execute_cell",
                "content": "df.groupby('region').sales.sum().plot()",
            },
            {
                "event_type": "error_event",
                "content": "Traceback (most recent call last):\n"
                '  File "/nb/cell_1.py", line 3, in <module>\n'
                "    df.groupby('region')\nKeyError: 'region'",
            },
            *call("execute_cell", "df.head(2)", "   Region  Sales\n0  North   12\n1  South   9"),
            says("The table has no column for regions, so I plotted nothing."),
        ],
        says=("(e1) failed: “KeyError: 'region'”",),
        silent=("last error event", "traceback", "Traceback"),
        source="e1",
    ),
    Domain(
        "browser: a stale element, clicked twice",
        [
            user("Put two packs of AA batteries into the basket and stop before paying."),
            *call("navigate", {"url": "https://shop.example/"}, "[12] Accept [13] Reject"),
            *call("click", {"ref": 13}, "Search\n[4] input"),
            *call("type", {"ref": 4, "text": "AA batteries"}, "8 pack 6.99 [31] Add"),
            *call("click", {"ref": 31}, "Error: element 31 is stale"),
            *call("click", {"ref": 31}, "Error: element 31 is stale"),
            *call("snapshot", {}, "AA batteries, 8 pack 6.99 [57] Add"),
            *call("click", {"ref": 57}, "Basket: 1 item"),
            says("Two packs are in your basket."),
        ],
        says=(
            "`click(ref=31)` was sent 2 times unchanged and failed each time (e7, e9)."
            " The last one reported: “Error: element 31 is stale”.",
        ),
        silent=("basket",),
        advice="When a call fails, do not send it again unchanged.",
        source="e9",
    ),
    Domain(
        "e-mail: addresses from nowhere, sent twice",
        [
            user("Send the minutes of Tuesday to everyone who was there."),
            *call("find_file", {"name": "minutes"}, {"files": [{"id": "f-88", "name": "tuesday"}]}),
            *call(
                "send_mail",
                {"to": ["a.meyer@corp.example", "j.ito@corp.example"], "attachment": "f-88"},
                {"error": "recipient a.meyer@corp.example unknown"},
            ),
            *call(
                "send_mail",
                {"to": ["a.meyer@corp.example", "j.ito@corp.example"], "attachment": "f-88"},
                {"error": "recipient a.meyer@corp.example unknown"},
            ),
            says("I could not send the mail."),
        ],
        says=(
            "unchanged and failed each time (e3, e5). The last one reported: “recipient",
            "No event before e3 contains the argument values `to=a.meyer@corp.example` or",
        ),
        silent=("attachment=f-88`.", "No later"),
        advice="Before a call that needs an ID",
    ),
    Domain(
        "robot: the slow call of a timeout",
        [
            user("Inspect pallet 4 and put it on the belt."),
            *call("move_arm", {"pose": "pallet-4"}, "reached", metadata={"duration_s": 3.1}),
            *call("scan", {"target": "pallet-4"}, "0 labels", metadata={"duration_s": 118.0}),
            *call("lift", {"height": 0.4}, "lifted", metadata={"duration_s": 2.2}),
        ],
        outcome="timeout",
        says=("timeout. The slowest call was `scan(target=pallet-4)` (e3): 118 s, 96%",),
        advice="",
        source="e3",
    ),
    Domain(
        "small talk in French",
        [
            user("Tu connais un bon film pour ce soir ?"),
            says("Bien sûr ! Amélie Poulain est un grand classique du cinéma français."),
            user("Je l'ai déjà vu, je te l'ai dit hier."),
            says("Alors peut-être Intouchables ?"),
            user("Ce n'est pas ce que je cherche, je veux un film récent."),
            says("Les films récents sont nombreux."),
        ],
        says=("The user wrote (e4): “Ce n'est pas ce que je cherche", "The reply before it (e3)"),
        silent=("occurs in",),
        advice="",
        source="e3",
    ),
    Domain(
        "continuous integration: a failing test, run twice",
        [
            user("Why is the build of branch payments red?"),
            *call(
                "bash",
                "gh run view 771 --log",
                "step 1 ok\n" * 60 + "[output truncated]",
                metadata={"exit_code": 0},
            ),
            *(
                row
                for _ in range(2)
                for row in call(
                    "bash",
                    "npm test",
                    "FAIL src/pay.test.ts\n  ● rounds cents\n    Expected: 10.01",
                    metadata={"exit_code": 1},
                )
            ),
            says("The build is red because of a flaky test."),
        ],
        says=(
            "`bash(npm test)` was sent 2 times unchanged and failed each time (e3, e5)."
            " The last one ended with exit code 1.",
            "says: “[output truncated]”.",
        ),
        silent=("flaky",),
        advice="",
        source="e5",
    ),
    Domain(
        "stock control: an error in the middle is no crash",
        [
            user("Count the stock of article 7731 in all depots."),
            {
                "event_type": "tool_call",
                "tool_name": "stock",
                "content": '{"article": 7731, "depot": "north"}',
            },
            {"event_type": "error_event", "content": "ValueError: depot is closed on Sundays"},
            *call("stock", {"article": 7731, "depot": "south"}, {"count": 14}),
            says("There are 14 pieces in stock."),
        ],
        says=("`stock` failed with `depot=north` (e1): “ValueError: depot is closed on Sundays”.",),
        silent=("last error event", "14 pieces"),
    ),
    Domain(
        "translation: the error of the agent is not one of its last call",
        [
            user("Translate chapter 2 into Spanish."),
            *call("read_file", {"path": "ch2.txt"}, "It was a bright cold day in April."),
            says("I will translate it now."),
            {
                "event_type": "error_event",
                "content": "RuntimeError: maximum context length is 8192 tokens, requested 9411",
            },
        ],
        outcome="error",
        says=("The last error event (e4) reports: “RuntimeError: maximum context length",),
        silent=("failed",),
        advice="When a text exceeds the input limit of the model, shorten it",
        source="e4",
    ),
    Domain(
        "containers: a limit is no empty search",
        [
            user("Start the redis container."),
            *(
                row
                for _ in range(3)
                for row in call(
                    "docker",
                    "pull redis:7",
                    "Error response from daemon: toomanyrequests: You have reached your pull limit",
                )
            ),
            says("Docker does not respond."),
        ],
        says=("3 `docker` calls in a row (e1, e3, e5) returned “Error response from daemon",),
        silent=("search",),
        advice="",
        source="e1",
    ),
    Domain(
        "revenue: the query was corrected after a look at the list",
        [
            user("What was the revenue per country last week?"),
            *call(
                "query",
                {"sql": "select country, sum(revenue) from sales.orders group by 1"},
                {"error": {"message": "Not found: Dataset shop:sales", "code": 404}},
            ),
            *call("list_datasets", {}, {"datasets": ["sales_v2", "ops"]}),
            *call(
                "query",
                {"sql": "select country, sum(revenue) from sales_v2.orders group by 1"},
                {"rows": [["DE", 120.5], ["FR", 80.25]]},
            ),
            says("Germany 120.50, France 80.25."),
        ],
        outcome="success",
        says=("from sales.orders group by 1` (e1): “Not found: Dataset shop:sales”.", "sales_v2"),
        silent=("120",),
        advice="When a call reports that something does not exist, look up its exact name",
    ),
    Domain(
        "a script with an error of its own",
        [
            user("Sum the column amounts in a.csv."),
            *call(
                "python",
                {"code": "import csv\nprint(sum(int(r[1]) for r in csv.reader(open('a.csv'))))"},
                'Traceback (most recent call last):\n  File "<string>", line 2, in <module>\n'
                "ValueError: invalid literal for int() with base 10: 'amount'",
                metadata={"exit_code": 1},
            ),
            *call(
                "python",
                {"code": "import csv\nr = list(csv.reader(open('a.csv')))\nprint(len(r))"},
                "1290\n",
                metadata={"exit_code": 0},
            ),
            says("1290"),
        ],
        outcome="success",
        says=("(e1): “ValueError: invalid literal for int() with base 10: 'amount'”.",),
        silent=("rejected",),
        advice="",
    ),
    Domain(
        "a portal: the error that a later click overcame",
        [
            user("Download my March invoice from the portal."),
            *call("goto", {"url": "https://portal.example/login"}, "Sign in\nUser\nPassword"),
            *call(
                "click",
                {"selector": "#signin"},
                "Timeout 30000ms exceeded",
                error={"message": "Timeout 30000ms exceeded"},
            ),
            *call("click", {"selector": "button[type=submit]"}, "Dashboard"),
            *call("download", {"selector": "#inv-2024-02"}, "saved invoice-2024-02.pdf"),
            says("I downloaded the invoice."),
        ],
        says=("`click(selector=#signin)` (e3) failed: “Timeout 30000ms exceeded”.",),
        silent=("No later", "downloaded"),
        advice="",
    ),
    Domain(
        "a lamp: the reason in the response",
        [
            user("Turn on the lamp in the kitchen."),
            *call("light", {"room": "kitchen"}, {"success": False, "reason": "bulb offline"}),
            says("The lamp is on."),
        ],
        says=("`light(room=kitchen)` (e1) failed: “bulb offline”. No later `light` call",),
        silent=("lamp is on",),
        advice="",
        source="e1",
    ),
    Domain(
        "two calls at once, one of them failed",
        [
            user("Check the weather in Oslo and Rome."),
            *(
                {
                    "event_type": "tool_call",
                    "tool_name": "weather",
                    "content": f'{{"city": "{city}"}}',
                    "metadata": {"call_id": city},
                }
                for city in ("Oslo", "Rome")
            ),
            {
                "event_type": "tool_response",
                "content": "14 C",
                "metadata": {"call_id": "Rome"},
            },
            {
                "event_type": "error_event",
                "content": "upstream: bad gateway",
                "metadata": {"call_id": "Oslo"},
            },
            says("Rome has 14 degrees, Oslo too."),
        ],
        says=("`weather(city=Oslo)` (e1) failed: “upstream: bad gateway”.",),
        silent=("Rome has", "last error event"),
        source="e1",
    ),
]


@each_case("domain", RUNS)
def test_unseen_run(domain: Domain) -> None:
    check_domain(domain)
