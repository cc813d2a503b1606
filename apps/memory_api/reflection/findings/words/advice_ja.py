"""Rules for another run, in Japanese."""

# ruff: noqa: E501 - a sentence is easier to judge on one line

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apps.memory_api.playbook.rolls import with_roll
from apps.memory_api.reflection.findings.schemas import (
    Again,
    Answer,
    Assertion,
    Contrast,
    Crash,
    Departure,
    Dialogue,
    Failure,
    Hop,
    Origin,
    Refusal,
    Repeat,
    Retry,
    Streak,
    Unconfirmed,
    Untold,
)
from apps.memory_api.reflection.findings.words.ja import listed
from apps.memory_api.reflection.findings.words.names import (
    arguments,
    in_general,
    sources,
    tool_of,
    tools,
)
from apps.memory_api.traces.arguments import MARKS, SPACE, named

_SEEN = "例"
_NOT_FOUND = "見つからないときは、同じ語の言い換えを繰り返さない。一覧か短い語で正確な名称を確かめ、二度見つからなければ依頼の別の事実から調べ直す。"
_AT_THE_EDGE = "変更を伴う呼び出しの前に、この場合に規則が許すか、利用者が求めたかを確かめる。断る前には、認められる手順や一部だけ行う方法を探して提案する。"
_ANOTHER_CHOICE = "条件に合うものが無いときは、変えられる条件を利用者に尋ね、一つだけ変えるか外して、ほかはそのままで調べ直す。"
_SMALL_TALK = (
    "雑談では、一般論で受けず、相手の話の具体的な点を一つ受けてから、それについて短く問い返す。"
)
_GUARDS = {
    "timeout": "時間の上限に達したら、同じ内容を送り直さず、範囲を絞るか分割してから実行する。",
    "rate_limit": "回数制限で断られたら、間を置き、まとめた少ない回数で送る。",
    "permission": "権限不足で断られたら、引数を変えて繰り返さず、正しい権限を得てから行う。",
    "network": "接続できないときは、宛先と接続を一度確かめ、待ってから回数を決めて再試行する。",
    "syntax": "構文エラーが返ったら、置き換える範囲の先頭と末尾を含めた全体を送り直し、先に括弧の対応を確かめる。",
    "shortage": "金額や数が合わないときは、道具の示した合計から内訳をすべて計算し直し、あらためて同意を得る。",
    "missing": _NOT_FOUND,
    "unavailable": _ANOTHER_CHOICE,
    "invalid": "入力が受け付けられないときは、メッセージの示す形式と引数を一つずつ比べ、合わないものだけを直す。",
    "parse": "モデルの書いた文をコードや引数として解析する箇所では、解析エラーを捕らえ、内容をモデルに示して一度だけ書き直させる。",
    "double": "二つ調べたいときは呼び出しを二回に分ける。一回の呼び出しは行の終わりまでを一つの引数として受け取る。",
    "model": "モデルの上限を超えたら、必要な部分だけに縮めてから呼び直す。",
}


class JapaneseAdvice:
    """Implements `Advice`. What is said of a tool is said of any, with the tool in a roll at the
    end: the same advice on another is the same sentence.
    """

    def drop_quotes(self, tool: str) -> str:
        rule = "引用符付きの名称が見つからないときは、語を変える前に引用符を外して送り直す。"
        return with_roll(rule, _SEEN, tools(tool))

    def take_offer(self, tool: str, offered: Sequence[str]) -> str:
        here = f"（ここでは {listed(offered[:2])}）" if offered else ""
        rule = f"見つからない代わりに候補が挙がったときは、言い換えずに、最も近い候補{here}を表記どおりに開く。"
        return with_roll(rule, _SEEN, tools(tool))

    def give_up_rewording(self, s: Streak) -> str:
        return with_roll(_NOT_FOUND, _SEEN, tools(s.tool))

    def convert(self, c: Crash) -> str:
        return f"{c.wanted} 型を求める箇所に {c.got} 型の結果を渡すときは、先に変換する。数値の結果で一度試しておく。"

    def guard(self, kind: str, what: str, message: str, repeated: bool) -> str | None:
        rule = _GUARDS.get(kind)
        if rule is None:
            if not repeated:
                return None
            rule = "同じ失敗が二度続いたら、繰り返さずにやり方を変える。"
        return with_roll(rule, _SEEN, tools(tool_of(what)))

    def exact_form(self, a: Answer) -> str:
        return "完全一致で採点されるときは、出典の表記どおりの名称だけを過不足なく答える。"

    def compare(self, a: Answer) -> str:
        return (
            "二つを比べる質問では、それぞれの値を出典とともに書き出し、並べて確かめてから答える。"
        )

    def weigh_candidates(self, a: Answer) -> str:
        return "読んだ資料に候補が複数あるときは、質問の条件を一つずつ当てはめ、該当箇所に戻ってから答える。"

    def search_name(self, a: Answer) -> str:
        return f"質問にある名称（ここでは {listed(a.unsearched)}）をまだ調べていないときは、答える前に調べる。"

    def read_first(self, a: Answer) -> str:
        return "答えようとする語がどの応答にも無いときは、その名称で検索して読んでから答える。"

    def another_reading(self, a: Answer) -> str:
        return "最初のページで答えが出たように見えても、質問の言葉に当てはまる別の人物・作品・場所が無いか確かめてから答える。"

    def settle(self, d: Departure) -> str:
        rule = "変更を伴う呼び出しの引数は、推測で決めない。誤った値でも道具は断らないので、依頼・規則・応答から決め、利用者に読み上げて確かめる。"
        return with_roll(rule, "誤った引数", {d.tool: arguments(d.changes)})

    def hold_back(self, d: Departure) -> str:
        return with_roll(_AT_THE_EDGE, "不要だった呼び出し", tools(d.tool))

    def before_declining(self, d: Departure) -> str:
        return with_roll(_AT_THE_EDGE, "早く断りすぎた呼び出し", tools(d.tool))

    def all_parts(self, d: Sequence[Departure]) -> str:
        rule = "依頼が複数あるときは、先に一覧にし、すべての呼び出しが済むまで決して終えない。"
        return with_roll(rule, "抜けていた呼び出し", tools(*(x.tool for x in d[:3])))

    def tell_figure(self, u: Untold) -> str:
        return "金額や件数を聞かれたら、対象をすべて含めて計算し、数値そのものを伝えてから終える。"

    def as_the_success(self, c: Contrast) -> str | None:
        if c.changes and c.tool:
            names = listed(
                list(dict.fromkeys(x.name if named(x) else "引数" for x in c.changes[:3]))
            )
            return f"同様の依頼で {c.tool} を呼ぶときは、{names} を根拠を確かめて決める。成否の違いはそこにあった。"
        tools = c.tools_ours if c.we_succeeded else c.tools_theirs
        if tools:
            return f"同様の依頼では {listed(tools)} を手順に入れる。成功した試行だけが使っていた。"
        good, bad = (c.ours, c.theirs) if c.we_succeeded else (c.theirs, c.ours)
        if not good or not bad or "[" not in good[0]:
            return None
        return f"同様の質問では、{bad[0]} ではなく {good[0]} から始める。成否はそこで分かれた。"

    def change_it(self, r: Retry) -> str | None:
        if r.took_offer:
            return self.take_offer(r.tool, ())
        if any(c.name == MARKS and (c.after or "")[:1] in "\"'" for c in r.changes):
            rule = (
                "空白や括弧を含む引数が受け付けられないときは、語を変える前に全体を引用符で囲む。"
            )
            return with_roll(rule, _SEEN, tools(r.tool))
        if any(c.name == MARKS for c in r.changes):
            return self.drop_quotes(r.tool)
        if any(c.name == SPACE for c in r.changes):
            rule = "字下げの誤りが返ったら、前後の行と同じ空白で同じ内容を送り直す。"
            return with_roll(rule, _SEEN, tools(r.tool))
        if r.via and r.taken:
            return self._copied(r.tool, {r.taken: r.via})
        if any(named(c) for c in r.changes):
            return self._changed(r)
        only = r.changes[0] if len(r.changes) == 1 else None
        if only and only.before and not only.after:
            rule = f"付け足しのある名称（ここでは {only.before}）が見つからないときは、付け足しを外す。"
            return with_roll(rule, _SEEN, tools(r.tool))
        return self.guard(r.kind, r.tool, r.message, False)

    def _changed(self, r: Retry) -> str:
        """Named arguments were changed, and it worked."""
        if r.kind in ("missing", "unavailable", "failed"):
            label = "外した条件" if all(c.after is None for c in r.changes) else "変えた条件"
            return with_roll(_ANOTHER_CHOICE, label, {r.tool: arguments(r.changes)})
        rule = f"「{in_general(r.message)}」で失敗したら、合わない引数だけを直し、ほかは変えない。"
        return with_roll(rule, "直した引数", {r.tool: arguments(r.changes)})

    def look_up(self, f: Failure) -> str:
        rule = "呼び出しに要る番号や名称は自分で作らない。前の応答から取り、無ければ先に調べる。"
        return with_roll(rule, "作られた値", {f.tool: [x.split("=", 1)[0] for x in f.invented]})

    def start_otherwise(self, a: Again) -> str:
        return f"同じ依頼で前の試行が失敗しているときは、同じ呼び出し（ここでは {a.first_call}）から始めず、依頼の別の事実か前回見送った候補から調べる。"

    def no_repeat(self, r: Repeat) -> str:
        rule = "結果が得られなかった呼び出しは、同じ内容で送り直さない。引数か道具を変える。"
        return with_roll(rule, _SEEN, tools(r.tool))

    def ask_first(self, u: Unconfirmed) -> str:
        rule = "規則が同意を求めるときは、内容を示し、はっきりした同意を得てから呼ぶ。"
        return with_roll(rule, "同意の無かった呼び出し", tools(u.tool))

    def follow_name(self, hops: Sequence[Hop]) -> str:
        return "質問が名称を伏せて説明しているときは、その名称が出るページを見つけ、次にその名称をそのまま検索する。"

    def fill_from(self, o: Origin) -> str | None:
        if o.from_tools:
            return self._copied(o.tool, {name: tool for name, _, tool in o.from_tools})
        if o.carried:
            rule = (
                "利用者や前の呼び出しがすでに示した値は、聞き直さず、次の呼び出しにそのまま使う。"
            )
            return with_roll(rule, "引き継いだ値", {o.tool: [name for name, _ in o.carried]})
        return None

    def _copied(self, tool: str, source: Mapping[str, str]) -> str:
        name = f"`{tool}`" if tool else "その呼び出し"
        rule = f"{name} に渡す正確な値は、先に次の道具を呼び、応答から写す。"
        return with_roll(rule, "写す値", sources(source))

    def assertion(self, a: Assertion) -> str:
        name = a.test.split("::")[-1] if a.test else "失敗しているテスト"
        return f"{name} が対象とするコードを変えるときは、先にそのテストを実行し、通してから範囲を広げる。"

    def talk(self, d: Dialogue, won: bool) -> str | None:
        if won:
            strong = d.asked_back * 2 >= d.replies and d.taken_up * 2 >= d.replies
            return _SMALL_TALK if strong else None
        if d.unhappy:
            return "利用者が不満や疑問を示したら、話を進める前にその点に答え、返し方を変える。"
        if d.replies >= 5 and d.asked_back * 4 <= d.replies:
            return _SMALL_TALK
        if d.repeated:
            return "返答が続くときは言い回しを変え、一度使った決まり文句を繰り返さない。"
        return _SMALL_TALK if d.asked_back * 2 > d.replies else None

    def stand_firm(self, r: Refusal) -> str:
        if r.kind == "handed_over":
            return "規則や道具の範囲を超える依頼は、先に状況を調べ、誰の何の依頼でなぜできないかを添えて引き継ぐ。"
        return "希望どおりにできないときは、理由とともにそう伝え、代わりにできることをすぐに示す。"
