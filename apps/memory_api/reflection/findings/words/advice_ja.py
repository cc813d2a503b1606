"""Rules for another run, in Japanese."""

# ruff: noqa: E501 - a sentence is easier to judge on one line

from __future__ import annotations

from collections.abc import Sequence

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
from apps.memory_api.traces.arguments import MARKS, SPACE, named

_GUARDS = {
    "timeout": "{what} が時間の上限に達したら、同じ内容を送り直さず、範囲を絞るか分割してから実行する。",
    "rate_limit": "{what} が回数制限で断られたら、間を置き、まとめた少ない回数で送る。",
    "permission": "{what} が権限不足で断られたら、引数を変えて繰り返さず、正しい権限を得てから行う。",
    "network": "{what} が接続できないときは、宛先と接続を一度確かめ、待ってから回数を決めて再試行する。",
    "syntax": "{what} が構文エラーを返したら、置き換える範囲の先頭と末尾を含めた全体を送り直し、先に括弧の対応を確かめる。",
    "shortage": "{what} が金額や数の不一致を返したら、道具の示した合計から内訳をすべて計算し直し、あらためて同意を得る。",
    "missing": "{what} で見つからないときは、次を試す前に一覧か短い語で正確な名称を確かめる。",
    "unavailable": "{what} が希望の条件で取れないときは、近い時刻や別の候補をすぐに示し、ほかの条件は変えずに送り直す。",
    "invalid": "{what} が入力を受け付けないときは、メッセージの示す形式と引数を一つずつ比べ、合わないものだけを直す。",
    "parse": "モデルの書いた文をコードや引数として解析する箇所（{what}）では、解析エラーを捕らえ、内容をモデルに示して一度だけ書き直させる。",
    "double": "二つ調べたいときは呼び出しを二回に分ける。{what} は行の終わりまでを一つの引数として受け取る。",
    "model": "{what} がモデルの上限を超えたら、必要な部分だけに縮めてから呼び直す。",
}


class JapaneseAdvice:
    """Implements `Advice`."""

    def drop_quotes(self, tool: str) -> str:
        return (
            f"{tool} で引用符付きの名称が見つからないときは、語を変える前に引用符を外して送り直す。"
        )

    def take_offer(self, tool: str, offered: Sequence[str]) -> str:
        return f"{tool} が見つからない代わりに候補を挙げたときは、言い換えずに、最も近い候補（ここでは {listed(offered[:2])}）を次に開く。"

    def give_up_rewording(self, s: Streak) -> str:
        return (
            f"{s.tool} が二度続けて失敗したら、三度目の言い換えはせず、依頼の別の事実から調べ直す。"
        )

    def convert(self, c: Crash) -> str:
        return f"{c.wanted} 型を求める箇所に {c.got} 型の結果を渡すときは、先に変換する。数値の結果で一度試しておく。"

    def guard(self, kind: str, what: str, message: str, repeated: bool) -> str | None:
        rule = _GUARDS.get(kind)
        if rule is None:
            return (
                f"{what} が二度続けて「{message}」を返したら、繰り返さずにやり方を変える。"
                if repeated
                else None
            )
        return rule.replace("{what}", what)

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
        names = listed(list(dict.fromkeys(c.name if named(c) else "引数" for c in d.changes[:3])))
        return f"{d.tool} を呼ぶ前に、{names} を依頼・規則・応答から決め、利用者に読み上げて確かめる。誤った値でも道具は断らない。"

    def hold_back(self, d: Departure) -> str:
        return f"依頼が {d.tool} に向かうときは、この場合に規則が許すかを確かめ、許さないならそう伝えて何も変更しない。"

    def before_declining(self, d: Departure) -> str:
        return f"{d.tool} で応じられそうな依頼を断る前に、認められる手順（順序を変える、一部だけ行う）を探して提案する。"

    def all_parts(self, d: Sequence[Departure]) -> str:
        tools = listed(list(dict.fromkeys(x.tool for x in d))[:3])
        return (
            f"依頼が複数あるときは一覧にし、それぞれの呼び出し（特に {tools}）が済むまで終えない。"
        )

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
            return f"{r.tool} が候補を挙げて失敗したときは、候補の名称をそのまま送る。"
        if any(c.name == MARKS and (c.after or "")[:1] in "\"'" for c in r.changes):
            return f"{r.tool} が空白や括弧を含む引数を受け付けないときは、語を変える前に全体を引用符で囲む。"
        if any(c.name == MARKS for c in r.changes):
            return self.drop_quotes(r.tool)
        if any(c.name == SPACE for c in r.changes):
            return f"{r.tool} が字下げの誤りを返したら、前後の行と同じ空白で同じ内容を送り直す。"
        if r.via and r.taken:
            return f"{r.tool} に渡す {r.taken} は、会話から組み立てず {r.via} の応答から取る。"
        names = [c.name for c in r.changes[:3] if named(c)]
        if names and all(c.after is None for c in r.changes):
            return f"{r.tool} で該当が無いときは、{listed(names)} のような必須でない条件を一つ外せるか尋ね、外して調べ直す。"
        if r.kind == "unavailable" and names:
            return f"{r.tool} が希望の条件で取れないときは、{listed(names)} をずらした案を利用者に尋ね、ほかの引数は変えずに送り直す。"
        if names:
            return f"{r.tool} が「{r.message}」で失敗したら、まず {listed(names)} を見直し、ほかの引数は変えない。"
        only = r.changes[0] if len(r.changes) == 1 else None
        if only and only.before and not only.after:
            return f"{r.tool} で「{only.before}」のような付け足しのある名称が見つからないときは、付け足しを外す。"
        return self.guard(r.kind, r.tool, r.message, False)

    def look_up(self, f: Failure) -> str:
        names = listed([x.split("=", 1)[0] for x in f.invented])
        return f"{f.tool} に渡す {names} は前の応答から取り、無ければ先に調べる。自分で作らない。"

    def start_otherwise(self, a: Again) -> str:
        return f"同じ依頼で前の試行が失敗しているときは、同じ呼び出し（ここでは {a.first_call}）から始めず、依頼の別の事実か前回見送った候補から調べる。"

    def no_repeat(self, r: Repeat) -> str:
        return f"{r.tool} の結果が得られなかったときは、同じ内容を送り直さず、引数か道具を変える。"

    def ask_first(self, u: Unconfirmed) -> str:
        return f"規則が同意を求めるときは、{u.tool} の内容を示し、はっきりした同意を得てから呼ぶ。"

    def follow_name(self, hops: Sequence[Hop]) -> str:
        return "質問が名称を伏せて説明しているときは、その名称が出るページを見つけ、次にその名称をそのまま検索する。"

    def fill_from(self, o: Origin) -> str | None:
        if o.from_tools:
            names = listed(list(dict.fromkeys(n for n, _, _ in o.from_tools))[:3])
            tools = listed(list(dict.fromkeys(t for _, _, t in o.from_tools))[:2])
            end = "、利用者の同意を得てから送る" if o.confirmed else ""
            return f"{o.tool} の前に {tools} を呼び、{names} を応答から写し{end or 'て使う'}。"
        if o.carried:
            return f"{o.tool} に進むときは、{listed([f'{n}（{v}）' for n, v in o.carried])} を聞き直さず、前の呼び出しから引き継ぐ。"
        return None

    def assertion(self, a: Assertion) -> str:
        name = a.test.split("::")[-1] if a.test else "失敗しているテスト"
        return f"{name} が対象とするコードを変えるときは、先にそのテストを実行し、通してから範囲を広げる。"

    def talk(self, d: Dialogue, won: bool) -> str | None:
        if won:
            strong = d.asked_back * 2 >= d.replies and d.taken_up * 2 >= d.replies
            return (
                "雑談では、相手の言葉を一つ受けてから、それについて短く問い返す。"
                if strong
                else None
            )
        if d.unhappy:
            return "利用者が不満や疑問を示したら、話を進める前にその点に答え、返し方を変える。"
        if d.replies >= 5 and d.asked_back * 4 <= d.replies:
            return "雑談では、二回に一度は相手の直前の話について問い返す。"
        if d.repeated:
            return "返答が続くときは言い回しを変え、一度使った決まり文句を繰り返さない。"
        return (
            "相手が話題を挙げたときは、一般論で受けずに、その話題の具体的な点を一つ挙げてから問い返す。"
            if d.asked_back * 2 > d.replies
            else None
        )

    def stand_firm(self, r: Refusal) -> str:
        if r.kind == "handed_over":
            return "規則や道具の範囲を超える依頼は、先に状況を調べ、誰の何の依頼でなぜできないかを添えて引き継ぐ。"
        return "希望どおりにできないときは、理由とともにそう伝え、代わりにできることをすぐに示す。"
